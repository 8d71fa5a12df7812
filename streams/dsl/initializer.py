"""The type of a function that makes a first aggregate."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Initializer(Protocol[T_co]):
    """Makes the aggregate of a key that has none yet.

    A protocol, because mypy then infers the aggregate's type before it looks at the aggregator.
    """

    def __call__(self) -> T_co:
        """Return the first aggregate."""
        ...
