"""What was meant by a name that does not exist, for messages.

This module imports nothing of the project.
"""

from collections.abc import Iterable


def similar(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """Return up to ``most`` of the names that are similar to ``name``, the nearest first."""
    # Imported here, because only errors need it.
    from difflib import get_close_matches

    return get_close_matches(name, [*names], n=most)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar, or None if none is."""
    return next(iter(similar(name, names)), None)


def suggestion(name: str, names: Iterable[str], form: str = "did you mean {}?") -> str:
    """Return a question for the nearest name, or an empty text if no name is similar.

    >>> suggestion("linger", ["linger_ms", "acks"])
    "did you mean 'linger_ms'?"
    """
    near = nearest(name, names)
    return "" if near is None else form.format(repr(near))


def meant(name: str, names: Iterable[str]) -> str:
    """Return a part of a message that suggests the nearest name, or else lists all of them.

    >>> meant("x", ["linger_ms", "acks"])
    'there are: acks, linger_ms'
    """
    names = sorted(names)
    return suggestion(name, names) or f"there are: {', '.join(names) or 'none'}"
