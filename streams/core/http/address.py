"""Addresses in the form HOST:PORT."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

from streams.core.errors import ConfigError

#: Hosts that mean all addresses of the machine; clients cannot connect to them.
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


class Address(NamedTuple):
    """A host and port to listen on or connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, where: str = "", *, lowest_port: int = 0, needs_host: bool = True) -> Address:
    """Parse HOST:PORT; an IPv6 host is in brackets.

    ``where`` is the prefix of an error message.  Port 0 selects a free port to listen on.

    Raises:
        ConfigError: the text does not have this form.

    >>> parse_address("127.0.0.1:9092")
    Address(host='127.0.0.1', port=9092)
    >>> str(parse_address("[::1]:0"))
    '[::1]:0'
    """
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and lowest_port <= int(port) < 65_536
    if not colon or not is_port or (needs_host and not host) or (":" in host and not is_bracketed):
        raise ConfigError(f"{where}{text!r} is not host:port, such as localhost:9092 or [::1]:9092")
    return Address(host[1:-1] if is_bracketed else host, int(port))


@lru_cache(maxsize=1_000)
def is_loopback(host: str) -> bool:
    """Whether a host can only be reached from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
