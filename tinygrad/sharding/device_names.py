"""Names of devices: "CPU" is short for "CPU:0".

Input: names. Output: the same names in another form. Names are not checked: the registry of
`tinygrad.device` knows which devices exist.
"""

from __future__ import annotations

from collections.abc import Sequence


def full_name(device: object) -> object:
    """A device name with its number: a name without one is number 0."""
    return f"{device}:0" if isinstance(device, str) and ":" not in device else device


def short_name(name: str) -> str:
    """A device name without the number 0."""
    return name.removesuffix(":0")


def device_kind(name: str) -> str:
    """The kind of a device: its name without the number."""
    return name.partition(":")[0]


def device_range(devices: Sequence[str]) -> str:
    """Device names as short text: consecutive numbers as `CPU:0-3` (a bare name is number 0)."""
    groups: list[list[str]] = []
    for name in devices:
        kind, number = _kind_and_number(name)
        if groups and _kind_and_number(groups[-1][-1]) == (kind, number - 1):
            groups[-1].append(name)
        else:
            groups.append([name])
    return ", ".join(_consecutive(names) for names in groups)


def _consecutive(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    kind, first = _kind_and_number(names[0])
    return f"{kind}:{first}-{first + len(names) - 1}"


def _kind_and_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(":")
    return (kind, int(number)) if kind and number.isdecimal() else (name, 0)
