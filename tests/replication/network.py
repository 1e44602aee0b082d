"""A network of one's own on one machine: a namespace for each host, and a switch between them that loses and delays.

    with Network() as network:
        a, b = network.host("a"), network.host("b")
        ... subprocess.Popen([*a.enter(), "program", a.address]) ...
        network.lose("a", "b")            # what a sends to b is gone; what b sends to a arrives
        network.cut("a", "b")             # nothing passes between them; nobody is told
        network.delay("a", "b", 0.2)      # one way, too
        network.heal()

Each host has a namespace with one tun device, whose other end is a descriptor of this process: a thread here is the
only wire between all hosts, so it decides over every packet. It takes root, or rather CAP_SYS_ADMIN and /dev/net/tun,
and no module of the kernel beyond that (netem and netfilter may be missing). Nothing is left behind: namespaces and
devices live as long as this process holds them. Packets leave no namespace: there is no route out.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_IFF_UP_RUNNING = 0x41
_DEVICE = b"tun0"
_MTU = 32_000
_PACKET_SIZE_MAX = 1 << 16
_PACKETS_A_TURN = 64
_NET = "10.77.0."
_NETMASK = "255.255.255.0"
# A peer that was cut off is tried again soon after it is back: the kernel would wait up to two minutes.
_SYSCTLS = {"/proc/sys/net/ipv4/tcp_rto_max_ms": "1000", "/proc/sys/net/ipv4/tcp_syn_linear_timeouts": "60"}

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Way:
    """How packets fare from one host to another."""

    loss: float = 0.0
    delay_s: float = 0.0


class Host:
    """A place for processes, with an address that only the hosts of its network reach."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        with ThreadPoolExecutor(1) as thread:  # the namespace of a thread is its own
            self.namespace, self.wire = thread.submit(self._make).result()

    def enter(self) -> list[str]:
        """The words in front of a command that make it run here."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespace}", "--"]

    def run(self, work: Callable[[], T]) -> T:
        """Do something in this process as if it were this host: what it connects to, it reaches from here."""

        def there() -> T:
            _check(_libc.setns(self.namespace, _CLONE_NEWNET))
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(there).result()

    def _make(self) -> tuple[int, int]:
        _check(_libc.unshare(_CLONE_NEWNET))
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        wire = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(wire, _TUNSETIFF, struct.pack("16sH22x", _DEVICE, _IFF_TUN | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for request, value in ((_SIOCSIFADDR, self.address), (_SIOCSIFNETMASK, _NETMASK)):
                address = struct.pack("16sHH4s16x", _DEVICE, socket.AF_INET, 0, socket.inet_aton(value))
                fcntl.ioctl(control, request, address)
            fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", _DEVICE, _MTU))
            for device in (_DEVICE, b"lo"):
                fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", device, _IFF_UP_RUNNING))
        for path, value in _SYSCTLS.items():
            with suppress(OSError), open(path, "w") as setting:  # older kernels have not all of them
                setting.write(value)
        return namespace, wire

    def close(self) -> None:
        os.close(self.wire)
        os.close(self.namespace)


class Network:
    """Hosts and the switch between them."""

    can_part = True

    def __init__(self, seed: int = 0) -> None:
        self.hosts: dict[str, Host] = {}
        self._ways: dict[tuple[str, str], Way] = {}
        self._by_wire: dict[int, Host] = {}
        self._by_address: dict[bytes, Host] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._late_count = 0
        self._chance = random.Random(seed)
        self._epoll = select.epoll()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="network.switch", daemon=True)

    def __enter__(self) -> "Network":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._epoll.close()
        for host in self.hosts.values():
            host.close()

    def host(self, name: str) -> Host:
        """A new host, or the one of that name."""
        if name not in self.hosts:
            host = Host(name, f"{_NET}{len(self.hosts) + 1}")
            self.hosts[name] = self._by_wire[host.wire] = self._by_address[socket.inet_aton(host.address)] = host
            self._epoll.register(host.wire, select.EPOLLIN)
        return self.hosts[name]

    # Faults

    def set_way(self, sender: str, receiver: str, way: Way) -> None:
        self._ways[sender, receiver] = way

    def lose(self, sender: str, receiver: str, share: float = 1.0) -> None:
        self.set_way(sender, receiver, Way(loss=share))

    def delay(self, sender: str, receiver: str, delay_s: float) -> None:
        self.set_way(sender, receiver, Way(delay_s=delay_s))

    def cut(self, one: str, other: str) -> None:
        self.lose(one, other)
        self.lose(other, one)

    def isolate(self, name: str) -> None:
        for other in self.hosts.keys() - {name}:
            self.cut(name, other)

    def heal(self) -> None:
        self._ways.clear()

    # The switch

    def _carry(self) -> None:
        while not self._ending.is_set():
            wait_s = 0.05 if not self._late else max(0.0, min(0.05, self._late[0][0] - time.monotonic()))
            for wire, _ in self._epoll.poll(wait_s):
                self._read(wire)
            while self._late and self._late[0][0] <= time.monotonic():
                _, _, wire, packet = heapq.heappop(self._late)
                self._deliver(wire, packet)

    def _read(self, wire: int) -> None:
        sender = self._by_wire[wire]
        for _ in range(_PACKETS_A_TURN):
            try:
                packet = os.read(wire, _PACKET_SIZE_MAX)
            except BlockingIOError:
                return
            receiver = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if receiver is None:
                continue
            way = self._ways.get((sender.name, receiver.name))
            if way is None:
                self._deliver(receiver.wire, packet)
            elif way.loss < 1.0 and self._chance.random() >= way.loss:
                self._late_count += 1
                due_s = time.monotonic() + way.delay_s
                heapq.heappush(self._late, (due_s, self._late_count, receiver.wire, packet))

    @staticmethod
    def _deliver(wire: int, packet: bytes) -> None:
        with suppress(BlockingIOError):  # a full queue loses packets, as a switch does
            os.write(wire, packet)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def is_possible() -> bool:
    """Whether this process may make namespaces and devices."""
    try:
        with ThreadPoolExecutor(1) as thread:
            Host.close(thread.submit(Host, "trial", f"{_NET}1").result())
    except OSError:
        return False
    return True
