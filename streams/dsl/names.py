"""Names of nodes, stores and internal topics, numbered as Kafka Streams numbers them.

A topology has one counter.  A name given by the user also takes a number, so that naming an operator does not rename
other operators.  The module is pure and imports only ``core``.
"""

import re

from attrs import define

from streams.core.errors import TopologyError

#: Generated names: a prefix and ten digits.
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")

STORE = "STATE-STORE-"
REPARTITION_SUFFIX = "-repartition"


def check_name(name: str, what: str = "name") -> str:
    """Check that ``name`` may be part of a topic name, and return it.

    Raises:
        TopologyError: the name is empty, too long, or has characters that are invalid in topic names.
    """
    if not isinstance(name, str):
        raise TopologyError(f"{what} must be a str, not {name!r} of type {type(name).__qualname__}")
    if name in (".", "..") or not _LEGAL.fullmatch(name):
        raise TopologyError(
            f"{what} {name!r} is not possible: use 1 to 249 of the letters a-z and A-Z, digits, '.', '_' and '-'"
        )
    return name


def is_generated(name: str) -> bool:
    """Return whether ``name`` is a generated name of a node or store."""
    return _GENERATED.fullmatch(name) is not None


@define
class Names:
    """The name counter of one topology."""

    next_number: int = 0

    def generated(self, prefix: str) -> str:
        """Return a generated name: ``prefix`` with the next number of the counter."""
        name = f"{prefix}{self.next_number:010d}"
        self.next_number += 1
        return name

    def store(self, prefix: str) -> str:
        """Return a generated store name, with the next number of the counter."""
        return self.generated(prefix + STORE)

    def node(self, name: str | None, prefix: str) -> str:
        """Return ``name`` if the user gave one, otherwise a generated name; both take a number from the counter."""
        generated = self.generated(prefix)
        return generated if name is None else check_name(name)

    def suffixed(self, name: str | None, suffix: str, prefix: str) -> str:
        """Return ``name`` + ``suffix`` if the user gave a name, otherwise a generated name."""
        generated = self.generated(prefix)
        return generated if name is None else check_name(name + suffix)
