"""Addresses in the form HOST:PORT."""

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


def parse_address(text: str) -> Address:
    """Parse HOST:PORT; an IPv6 host is in brackets.

    Raises:
        ConfigError: the text does not have this form.

    >>> parse_address("127.0.0.1:9092")
    Address(host='127.0.0.1', port=9092)
    >>> str(parse_address("[::1]:0"))
    '[::1]:0'
    """
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and int(port) < 65_536
    if not colon or not is_port or (":" in host and not is_bracketed):
        raise ConfigError(f"address {text!r}: expected HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092")
    return Address(host[1:-1] if is_bracketed else host, int(port))


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
