"""The built-in store kinds, and their lookup by name."""

from typing import Final

from streams.core.errors import StoreError
from streams.state.specs import StoreKind
from streams.state.views.expiring import EXPIRING_KEY_VALUE, EXPIRING_TIMESTAMPED_KEY_VALUE
from streams.state.views.headed import (
    SESSION_WITH_HEADERS,
    TIMESTAMPED_KEY_VALUE_WITH_HEADERS,
    TIMESTAMPED_WINDOW_WITH_HEADERS,
)
from streams.state.views.keyvalue import KEY_VALUE, TIMESTAMPED_KEY_VALUE
from streams.state.views.lru import LRU
from streams.state.views.session import SESSION
from streams.state.views.versioned import VERSIONED
from streams.state.views.window import TIMESTAMPED_WINDOW, WINDOW

BUILT_IN: Final = (
    *(KEY_VALUE, TIMESTAMPED_KEY_VALUE, EXPIRING_KEY_VALUE, EXPIRING_TIMESTAMPED_KEY_VALUE),
    *(LRU, WINDOW, TIMESTAMPED_WINDOW, SESSION, VERSIONED),
    *(TIMESTAMPED_KEY_VALUE_WITH_HEADERS, TIMESTAMPED_WINDOW_WITH_HEADERS, SESSION_WITH_HEADERS),
)


def built_in_kind(name: str) -> StoreKind:
    """Return the built-in kind with the given name.

    Raises:
        StoreError: no built-in kind has this name.
    """
    for kind in BUILT_IN:
        if kind.name == name:
            return kind
    raise StoreError(f"there is no kind of store {name!r}; built in are {', '.join(kind.name for kind in BUILT_IN)}")
