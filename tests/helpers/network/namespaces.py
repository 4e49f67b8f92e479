"""A network of namespaces: each node of a cluster in one of its own, on a bridge, with links that can be cut.

    count --> namespaces, addresses --> cut(from, to) --> heal --> nothing is left behind

A cut is silence in one direction.  The sender is given a hardware address for the receiver that nobody has: whatever it
sends is lost on the bridge, and no error comes back.  The host itself reaches every node at all times: clients are
there.
"""

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

NOBODY = "02:00:00:00:00:fe"
SUBNETS = 250
HOST_NUMBER = 254


def missing() -> str:
    """Return what this machine lacks to make such a network, empty if nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            return f"network namespaces need `{program}`, of the package {package}"
    probe = f"wq{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"this machine allows no network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


class Network:
    """Names of a process of its own, so that two runs do not meet."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._mark = f"wq{os.getpid() % 100_000}"
        self._subnet = f"10.77.{os.getpid() % SUBNETS}"
        self.cuts: set[tuple[int, int]] = set()  # (from, to): nothing arrives
        self._numbers = [node + 1 for node in range(count)]  # the last part of each node's address
        self._unused = iter(range(count + 1, HOST_NUMBER))

    def address(self, node: int) -> str:
        return f"{self._subnet}.{self._numbers[node]}"

    @property
    def host(self) -> str:
        """The address of the host, as the nodes reach it."""
        return f"{self._subnet}.{HOST_NUMBER}"

    def move(self, node: int) -> None:
        """Give a node an address that no node has had; the old one is nobody's from now on."""
        inside, old = self._namespace(node), self.address(node)
        self._numbers[node] = next(self._unused)
        self._ip("-n", inside, "address", "del", f"{old}/24", "dev", "eth0")
        self._ip("-n", inside, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
        # With the address went what it knew of the others.
        for other in range(self.count):
            if other != node:
                self._point(other, node, self._hardware(node))
                self._point(node, other, self._hardware(other))

    def prefix(self, node: int) -> tuple[str, ...]:
        """Return what makes a command line run where that node lives; `ip netns exec` would hold on to every mount."""
        return ("nsenter", f"--net=/run/netns/{self._namespace(node)}")

    # --- cuts ---

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing that one sends arrives at the other any more."""
        self.cuts.add((sender, receiver))
        self._point(sender, receiver, NOBODY)

    def part(self, one: int, two: int) -> None:
        self.cut(one, two)
        self.cut(two, one)

    def isolate(self, node: int) -> None:
        for other in range(self.count):
            if other != node:
                self.part(node, other)

    def vanish(self, node: int) -> None:
        """Nobody reaches a node any more, clients on the host neither, and nobody is told."""
        self._ip("link", "set", self._link(node), "down")

    def heal(self) -> None:
        """Everybody reaches everybody again."""
        for sender, receiver in self.cuts:
            self._point(sender, receiver, self._hardware(receiver))
        self.cuts.clear()

    def connections(self, node: int) -> int:
        """Return how many TCP connections there are where a node lives, or what is left of them."""
        found = subprocess.run([*self.prefix(node), "cat", "/proc/net/tcp"], capture_output=True, text=True, check=True)
        return len(found.stdout.splitlines()) - 1

    # --- up and down ---

    def __enter__(self) -> Self:
        self._ip("link", "add", self._mark, "type", "bridge")
        try:
            self._ip("address", "add", f"{self.host}/24", "dev", self._mark)
            self._ip("link", "set", self._mark, "up")
            for node in range(self.count):
                self._add(node)
            for node in range(self.count):  # fixed, so that no question for an address gets around a cut
                for other in range(self.count):
                    if other != node:
                        self._point(node, other, self._hardware(other))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was made, as far as it was.

        A link first: with its namespace it would go some time later, and its name be taken until then.
        """
        for node in range(self.count):
            subprocess.run(["ip", "link", "del", self._link(node)], capture_output=True)
            subprocess.run(["ip", "netns", "del", self._namespace(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._mark], capture_output=True)

    def _add(self, node: int) -> None:
        inside, outside = self._namespace(node), self._link(node)
        self._ip("netns", "add", inside)
        self._ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", inside)
        self._ip("link", "set", outside, "master", self._mark, "up")
        self._ip("-n", inside, "link", "set", "eth0", "address", self._hardware(node))
        self._ip("-n", inside, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
        self._ip("-n", inside, "link", "set", "eth0", "up")
        self._ip("-n", inside, "link", "set", "lo", "up")

    def _namespace(self, node: int) -> str:
        return f"{self._mark}n{node}"

    def _link(self, node: int) -> str:
        """Return what its link is called outside."""
        return f"{self._mark}h{node}"

    def _hardware(self, node: int) -> str:
        return f"02:00:00:00:01:{node + 1:02x}"

    def _point(self, sender: int, receiver: int, hardware: str) -> None:
        """Have one node believe that another one has this hardware address."""
        where = ("-n", self._namespace(sender), "neigh", "replace", self.address(receiver))
        self._ip(*where, "lladdr", hardware, "dev", "eth0", "nud", "permanent")

    @staticmethod
    def _ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
