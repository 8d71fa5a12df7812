"""What a state store is, before any task opens it.

A spec is a value in the topology; each task builds its own instance of the store from it.
Imports core only.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from attrs import field, frozen

from streams.core.serdes import Serde


class Family(Enum):
    """What the entries of stores are; changelogs of one family have one form."""

    KEYS = "keys"
    WINDOWS = "windows"
    SESSIONS = "sessions"


class StoreKind(Enum):
    """The typed view that a store offers."""

    KEY_VALUE = "kv"
    TIMESTAMPED_KEY_VALUE = "timestamped_kv"
    LRU = "lru"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped_window"
    SESSION = "session"
    VERSIONED = "versioned"

    @property
    def family(self) -> Family:
        """What the entries are: a store of another kind of the same family reads the same changelog."""
        if self in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
            return Family.WINDOWS
        return Family.SESSIONS if self is StoreKind.SESSION else Family.KEYS


@frozen
class StoreSpec:
    """A store's name, kind, serdes and keeping.

    ``retention_ms`` and ``window_size_ms`` belong to window stores (retention to session
    stores too), ``history_ms`` to versioned ones, ``max_entries`` to LRU ones.  ``is_persistent``
    False keeps the store in memory whatever the default engine is; None takes the default.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    is_persistent: bool | None = None
    has_caching: bool = True
    has_changelog: bool = True
    retention_ms: int = -1
    window_size_ms: int = -1
    retain_duplicates: bool = False
    history_ms: int = -1
    max_entries: int = -1
    changelog_config: Mapping[str, str] = field(factory=dict)
