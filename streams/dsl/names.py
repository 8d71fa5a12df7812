"""Names of nodes, stores and internal topics, numbered as Kafka Streams numbers them.

A topology has one counter.  A name that the user gives also takes a number, so that naming an
operator does not rename other operators.  Pure; imports errors only.
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
    """Return ``name`` if it may become part of a topic name.

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
    """Whether this module generated the name, for a node or store of a stream."""
    return _GENERATED.fullmatch(name) is not None


@define
class Names:
    """The counter of one topology."""

    next_number: int = 0

    def generated(self, prefix: str) -> str:
        """Return ``prefix`` with the next number."""
        name = f"{prefix}{self.next_number:010d}"
        self.next_number += 1
        return name

    def store(self, prefix: str) -> str:
        """Return the generated name of a store."""
        return self.generated(prefix + STORE)

    def given(self, name: str | None, prefix: str) -> str:
        """Return ``name`` if the user gave one, otherwise a generated name; both take a number."""
        generated = self.generated(prefix)
        return generated if name is None else check_name(name)

    def suffixed(self, name: str | None, suffix: str, prefix: str) -> str:
        """Return ``name`` + ``suffix`` if the user gave a name, otherwise a generated name."""
        generated = self.generated(prefix)
        return generated if name is None else check_name(name + suffix)
