"""The memory that this process may use: that of the machine, or less in a container.

Input: `/proc/self/cgroup` and the limits of control groups, version 1 or 2. A group is bounded by
its own limit and by those of the groups above it.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path, PurePosixPath

# by version of control groups: where their folders are, and the files that bound a group
_FOLDERS = {1: "sys/fs/cgroup/memory", 2: "sys/fs/cgroup"}
_FILES = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}


def physical_memory() -> int:
    """The size of this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@functools.cache
def memory_limit() -> int:
    """The bytes that this process may use: physical memory, or the limit of its container."""
    return min([physical_memory(), *cgroup_limits(Path("/"))])


def cgroup_limits(root: Path) -> list[int]:
    """The limits in bytes of the control groups of this process; none where there are none."""
    limits = []
    for version, group in _groups(root / "proc/self/cgroup"):
        # inside of a container, the folder of its group is often mounted as that of all groups
        for path in (group, *group.parents):
            folder = root / _FOLDERS[version] / path.relative_to("/")
            limits += [_read(folder / name) for name in _FILES[version]]
    return [limit for limit in limits if limit is not None]


def _groups(path: Path) -> list[tuple[int, PurePosixPath]]:
    """The versions and the paths of the groups that may bound memory."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        # the number of a hierarchy, its controllers, and the path of the group in it
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if group.startswith("/") and ".." not in group:
            if "memory" in controllers.split(","):
                groups.append((1, PurePosixPath(group)))
            elif number == "0" and not controllers:
                groups.append((2, PurePosixPath(group)))
    return groups


def _read(path: Path) -> int | None:
    """The limit in a file, or None if there is none: no file, or "max"."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
