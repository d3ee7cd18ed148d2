"""Two hosts on one machine: network namespaces that a pair of virtual Ethernet devices joins.

It needs the right to make namespaces. Each has its host name; `launcher` starts ranks in both by a
stand-in for ssh.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESSES = ("10.99.0.1", "10.99.0.2")
LINK_S = 120  # the most that a link may take to come up
# in a namespace, under its host name
ENTER = 'exec ip netns exec {name} unshare -u sh -c "hostname {name}; exec \\"\\$@\\"" _ "$@"'


class TwoHosts:
    """The names of the hosts, and the command that starts one rank in each."""

    def __init__(self, folder: Path) -> None:
        self.names = tuple(f"host{number}-{os.getpid()}" for number in (1, 2))
        self._folder = folder

    def launcher(self, mpiexec: str) -> list[str]:
        """A launcher of two ranks, one on each host, which talk over the network alone."""
        for name in self.names:
            self._script(name, ENTER.format(name=name))
        cases = "".join(
            f'{address}) exec {self._folder / name} sh -c "$*";;'
            for address, name in zip(ADDRESSES, self.names, strict=True)
        )
        skip = "while case $1 in -*) true;; *) false;; esac; do shift; done; host=$1; shift\n"
        remote = self._script("remote-shell", f"{skip}case $host in {cases} esac")
        options = ["-launcher", "ssh", "-launcher-exec", str(remote), "-localhost", ADDRESSES[0]]
        network = ["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", "eth0"]
        hosts = ["-hosts", ",".join(ADDRESSES), "-ppn", "1", "-n", "2"]
        return [str(self._folder / self.names[0]), mpiexec, *options, *network, *hosts]

    def _script(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def cut_link(self) -> None:
        """Take the link between the hosts down."""
        _ip("-n", self.names[0], "link", "set", "eth0", "down")


@contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Two hosts that exist in a `with` block. Raises OSError where they cannot be made."""
    hosts = TwoHosts(folder)
    try:
        for name in hosts.names:
            _ip("netns", "add", name)
        first, second = hosts.names
        veth = ("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0")
        _ip(*veth, "netns", second)
        for name, address in zip(hosts.names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
        for name in hosts.names:
            _wait_for_link(name)
        yield hosts
    finally:
        for name in hosts.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _wait_for_link(name: str) -> None:
    """Wait until the host's eth0 carries data: the kernel says so up to a second after "up"."""
    end = time.monotonic() + LINK_S
    while " state UP " not in (state := _ip("-n", name, "link", "show", "eth0")):
        if time.monotonic() > end:
            raise OSError(f"eth0 of {name} is not up after {LINK_S} s: {state.strip()}")
        time.sleep(0.02)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
