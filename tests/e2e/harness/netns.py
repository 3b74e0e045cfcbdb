"""A network of a test's own: parties in network namespaces around a bridge, and the faults of the paths between them.

The namespaces have no names: they live as long as the descriptors and programs of the test that made them, so nothing is left behind even
by a test that is killed, and addresses cannot clash with anyone's. The machine's own network is never touched. Needs root.
"""

import contextlib
import ctypes
import itertools
import os
import re
import subprocess
import threading

CLONE_NEWNET = 0x40000000
SUBNET = "10.99.0.0/16"
# Everything a fault does happens where packets arrive: whoever sends them notices nothing, as in a real network.
RULES = "table inet fault { chain arriving { type filter hook input priority 0; policy accept; }\n}\n"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}\n{text}")
    return done.stdout


class Namespace:
    """One network namespace, kept by an open descriptor."""

    def __init__(self):
        self.fd = -1
        thread = threading.Thread(target=self._make)  # which alone moves into it, and ends
        thread.start()
        thread.join()
        if self.fd < 0:
            raise self._problem

    def _make(self) -> None:
        try:
            _check(_libc.unshare(CLONE_NEWNET), "unshare (network namespaces need root)")
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            self._problem = problem

    @property
    def path(self) -> str:
        """What `ip` takes for the name of a namespace."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @contextlib.contextmanager
    def entered(self):
        """Sockets that this thread makes, and programs and threads that it starts, are in the namespace."""
        back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(self.fd, CLONE_NEWNET), "setns")
            try:
                yield
            finally:
                _check(_libc.setns(back, CLONE_NEWNET), "setns back")
        finally:
            os.close(back)

    def run(self, command: list[str], text: str = "") -> str:
        with self.entered():
            return run(command, text)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Party(Namespace):
    """One host of the network, with one address. The faults are those of what arrives here."""

    def __init__(self, name: str, number: int, hub: Namespace):
        super().__init__()
        self.name, self.address = name, f"10.99.{number // 250}.{number % 250 + 1}"
        try:
            hub.run(["ip", "-batch", "-"], f"link add p{number} type veth peer name eth0 netns {self.path}\n"
                                           f"link set p{number} master hub up\n")
            self.run(["ip", "-batch", "-"], f"link set lo up\naddress add {self.address}/16 dev eth0\nlink set eth0 up\n")
            self.run(["nft", "-f", "-"], RULES)
        except BaseException:
            self.close()
            raise

    def rule(self, *conditions: str, then: str = "drop") -> None:
        """What arrives and matches one of the conditions (each an nft expression) is counted, and dropped or rejected."""
        self.run(["nft", "-f", "-"], "".join(f"add rule inet fault arriving {condition} counter {then}\n" for condition in conditions))

    def lost(self) -> int:
        """How many packets the faults have taken since the last heal."""
        return sum(map(int, re.findall(r"counter packets (\d+)", self.run(["nft", "list", "chain", "inet", "fault", "arriving"]))))

    def heal(self) -> None:
        self.run(["nft", "flush", "chain", "inet", "fault", "arriving"])


class Network:
    """Parties by name, each of which reaches every other one, until a fault is made."""

    def __init__(self, *names: str):
        self.parties: dict[str, Party] = {}
        self._numbers = itertools.count()
        self.hub = Namespace()
        try:
            self.hub.run(["ip", "-batch", "-"], "link add hub type bridge\nlink set hub up\n")
            for name in names:
                self.add(name)
        except BaseException:
            self.close()
            raise

    def add(self, name: str) -> Party:
        self.parties[name] = Party(name, next(self._numbers), self.hub)
        return self.parties[name]

    def remove(self, name: str) -> None:
        self.parties.pop(name).close()

    def __getitem__(self, name: str) -> Party:
        return self.parties[name]

    def cut(self, one: str, *others: str) -> None:
        """No packet passes between the one and each of the others, in neither direction; nobody is told."""
        for other in others:
            self[one].rule(f"ip saddr {self[other].address}")
            self[other].rule(f"ip saddr {self[one].address}")

    def refuse(self, one: str, *others: str) -> None:
        """The others refuse every connection of the one, those there are included."""
        for other in others:
            self[other].rule(f"ip saddr {self[one].address} meta l4proto tcp", then="reject with tcp reset")

    def lose_answers(self, to: str, *of: str) -> None:
        """Requests arrive and connections are made, but no answer of more than a few bytes comes back."""
        self[to].rule(*(f"ip saddr {self[other].address} meta length > 100" for other in of))

    def thin(self, one: str, *others: str, percent: int = 50) -> None:
        """Of the packets between the one and each of the others, so many get lost at random, in each direction."""
        for other in others:
            self[one].rule(f"ip saddr {self[other].address} numgen random mod 100 < {percent}")
            self[other].rule(f"ip saddr {self[one].address} numgen random mod 100 < {percent}")

    def lost(self) -> int:
        return sum(party.lost() for party in self.parties.values())

    def heal(self) -> None:
        for party in self.parties.values():
            party.heal()

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.hub.close()

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_) -> None:
        self.close()
