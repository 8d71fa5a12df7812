"""Formats of stores, which are stored with the data of a store so that no later topology misreads the data.

A format has two parts. The content (family, serdes, window size) is the format of keys and values in the state
directory and the changelog; if the content differs, the store cannot be used. The layout (kind, segment length)
is the format of the directory; if only the layout differs, the store can be restored from the changelog.
Of the other packages, this module imports only ``core``.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen

from streams.core.migrations import FIRST_VERSION, version_of
from streams.core.serdes.serdes import PinnedSerde, Serde, WindowedSerde, fields_of
from streams.state.specs import Family, StoreSpec

_FORMAT = 1
_WORDS = {Family.KEYS: "entries by key", Family.WINDOWS: "windows", Family.SESSIONS: "sessions"}
#: Matches the type of a JSON serde in a serde name, with everything after it. The type is not compared, because
#: classes may be moved and get new fields; data that does not fit the class is an error when it is read.
_JSON = re.compile(r"(^|:)(?:class:|json\b|tuple\b).*")


def serde_format(serde: Serde[Any]) -> str | None:
    """Return a name that serdes with the same bytes share, or None if the type of the serde is not known yet.

    >>> from streams.core.serdes.serdes import STRING, serde_for, time_windowed_ms
    >>> serdes = time_windowed_ms(STRING, 10), serde_for(dict[str, int]), PinnedSerde("n")
    >>> tuple(map(serde_format, serdes))
    ('time_windowed:10:string', 'json', None)
    """
    if isinstance(serde, PinnedSerde):
        return None if serde.type_name is None else _shortened(serde.type_name)
    if isinstance(serde, WindowedSerde):
        inner = serde_format(serde.inner)
        return None if inner is None else serde.name.removesuffix(serde.inner.name) + inner
    return _shortened(serde.name)


@lru_cache(maxsize=1024)
def _shortened(name: str) -> str | None:
    # A serde around a serde of an undeclared type was named before that type was known.
    return None if "pinned" in name.split(":") else _JSON.sub(r"\1json", name)


@frozen
class Content:
    """The format of a store's keys and values; None stands for a serde that is not known yet, and matches any serde."""

    family: Family
    key: str | None
    value: str | None
    #: -1 also with retained duplicates: the windows of joins hold single records, regardless of the window size.
    #: Of calendar windows: the name of the calendar.
    window_size_ms: int | str = -1
    holds_duplicates: bool = False

    @classmethod
    def of(cls, spec: StoreSpec) -> "Content":
        """Return the content format that a spec declares."""
        family = spec.kind.family
        size: int | str = str(spec.calendar) if spec.calendar else spec.window_size_ms
        size_ms = size if family is Family.WINDOWS and not spec.retain_duplicates else -1
        key = serde_format(spec.key_serde)
        value = serde_format(spec.value_serde)
        return cls(family, key, value, size_ms, spec.retain_duplicates)

    def differences(self, expected: "Content", *, may_convert: bool = False) -> list[str]:
        """Return the differences from the content that a topology expects; the result is empty if they match.

        With ``may_convert``, migrations read the values, of whatever type they are.
        """
        if self.family is not expected.family:
            return [f"holds {_WORDS[self.family]}, but the topology keeps {_WORDS[expected.family]}"]
        differences = []
        for what, was, now in (("keys", self.key, expected.key), ("values", self.value, expected.value)):
            if was is not None and now is not None and was != now and not (may_convert and what == "values"):
                differences.append(f"holds {what} written as {was}, but the topology reads {now}")
        if self.holds_duplicates != expected.holds_duplicates:
            several = "several values per key and time"
            one = "one value per key and time"
            was, now = (several, one) if self.holds_duplicates else (one, several)
            differences.append(f"holds {was}, but the topology keeps {now}")
        elif self.window_size_ms != expected.window_size_ms:
            was, now = (
                size if isinstance(size, str) else f"{size} ms"
                for size in (self.window_size_ms, expected.window_size_ms)
            )
            differences.append(f"holds windows of {was}, but those of the topology have {now}")
        return differences

    def to_json(self) -> list[Any]:
        """Return the fields as values that JSON can represent."""
        row = [self.family.value, self.key, self.value, self.window_size_ms, self.holds_duplicates]
        return row if self.family is Family.WINDOWS else row[:3]

    @classmethod
    def from_json(cls, row: Any) -> "Content | None":
        """Parse the result of ``to_json``, or return None if it is invalid."""
        try:
            family, key, value, *rest = row
            return cls(Family(family), key, value, *rest)
        except (TypeError, ValueError):
            return None


@frozen
class StoreFormat:
    """The stored format of a store: content, layout, and whether the changelog is complete."""

    content: Content
    #: Name of the store kind.
    kind: str
    segment_ms: int
    is_logged: bool
    #: Version of the values, which migrations raise.
    version: int = FIRST_VERSION
    #: Fields of the class of the values, None if they have none: names, each with whether a value must have it.
    fields: tuple[tuple[str, bool], ...] | None = None

    @classmethod
    def of(cls, spec: StoreSpec, *, is_logged: bool) -> "StoreFormat":
        """Return the format in which a new store would be written now."""
        content = Content.of(spec)
        kind = spec.kind
        version = version_of(spec.migrations)
        return cls(content, kind.name, kind.segment_ms(spec), is_logged, version, fields_of(spec.value_serde))

    @classmethod
    def read(cls, data: bytes | None) -> "StoreFormat | None":
        """Parse the result of ``encode``, or return None if ``data`` is None or its version is unknown."""
        if data is None:
            return None
        read = json.loads(data)
        if read.get("format") != _FORMAT:
            return None
        content = Content.from_json(read["content"])
        assert content is not None
        fields = read.get("fields")
        return cls(
            content,
            read["kind"],
            read["segment_ms"],
            read["logged"],
            read.get("version", FIRST_VERSION),
            None if fields is None else tuple((name, is_required) for name, is_required in fields),
        )

    def encode(self) -> bytes:
        """Return the format as bytes, as stored in the metadata of the store."""
        return _encoded(self)

    def has_layout_of(self, expected: "StoreFormat") -> bool:
        """Whether both formats have the same layout."""
        return (self.kind, self.segment_ms) == (expected.kind, expected.segment_ms)

    def field_difference(self, expected: "StoreFormat") -> str | None:
        """Return why values with these fields are not read as values of the wanted ones, None if they are.

        A field may be new if it has a default value, or gone.  Both at once may be a new name for a field, whose
        content would be lost.
        """
        if self.fields is None or expected.fields is None:
            return None
        had = dict(self.fields)
        has = dict(expected.fields)
        new = [name for name in has if name not in had]
        gone = [name for name in had if name not in has]
        if new and gone:
            return f"the field {_listed(gone)} is gone and {_listed(new)} is new, which may be another name for it"
        missing = [name for name in new if has[name]]
        return f"the field {_listed(missing)} is new and has no default value" if missing else None

    def advice_of_fields(self, store: str) -> str:
        """Return what to do about other fields of the values of a store, whose format this is now."""
        step = f"{self.version}, {self.version + 1}"
        return (
            f"give new fields a default value, convert the values with @migrate({store!r}, {step}), or give the store "
            "another name"
        )

    def lost_fields(self, expected: "StoreFormat") -> Sequence[str]:
        """Return the fields that values have and the wanted ones do not, if nothing else of the fields differs."""
        if self.fields is None or expected.fields is None or self.field_difference(expected):
            return ()
        has = dict(expected.fields)
        return [name for name, _ in self.fields if name not in has]

    def layout_difference(self, expected: "StoreFormat") -> str:
        """Return a description of how the layout differs from that of another format."""
        if self.kind != expected.kind:
            return f"it was of kind {self.kind} and is now {expected.kind}"
        what = "history" if self.content.family is Family.KEYS else "retention"
        return f"its {what} has changed, and with it the segments that hold its entries"


@lru_cache(maxsize=1024)
def _encoded(store_format: StoreFormat) -> bytes:
    # Cached, because every commit calls this and a format rarely changes.
    row = {
        "format": _FORMAT,
        "content": store_format.content.to_json(),
        "kind": store_format.kind,
        "segment_ms": store_format.segment_ms,
        "logged": store_format.is_logged,
    }
    if store_format.version != FIRST_VERSION:
        row["version"] = store_format.version
    if store_format.fields is not None:
        row["fields"] = store_format.fields
    return json.dumps(row, separators=(",", ":")).encode()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def advice(differences: Sequence[str]) -> str:
    """Return the advice in the error for a store whose content differs from what the topology expects."""
    return (
        f"{'; it '.join(differences)}; give the store another name, so that it starts empty, restore the previous "
        "declaration, "
        "or start over with another application id (or state directory)"
    )
