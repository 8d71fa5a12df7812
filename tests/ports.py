"""Ports of the loopback for servers that are started later, and again."""

import random
import socket
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on.

    Below those that the system gives to outgoing connections: a client that tries the port of a
    stopped server must not be given this very port, and be connected to itself.

    Raises:
        OSError: there are not so many in 200 tries.
    """
    lowest = 32_768
    if (limits := Path("/proc/sys/net/ipv4/ip_local_port_range")).exists():
        lowest = int(limits.read_text().split()[0])
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(max(10_000, lowest - 20_000), lowest), k=200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports below {lowest} on 127.0.0.1 in 200 tries")
