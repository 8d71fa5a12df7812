"""The type of a function that returns an initial aggregate."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Initializer(Protocol[T_co]):
    """Returns the initial aggregate of a key.

    A protocol, because mypy then infers the aggregate's type before it looks at the aggregator.
    """

    def __call__(self) -> T_co:
        """Return the initial aggregate."""
        ...
