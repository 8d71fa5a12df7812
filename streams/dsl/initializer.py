"""The type of a function that returns an initial aggregate."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Initializer(Protocol[T_co]):
    """A function that returns the initial aggregate for a key.

    This is a protocol because mypy then infers the type of the aggregate before it checks the aggregator.
    """

    def __call__(self) -> T_co:
        """Return the initial aggregate."""
        ...
