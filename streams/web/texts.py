"""Conversion between text, in paths and responses, and the keys and values of stores.

A key in a path is percent-encoded.  Without ``?key_format=`` the key type of the store determines the format: a
str is UTF-8 text, a number, bool or UUID is its usual text, bytes are the decoded bytes of the path, and all other keys
are JSON.
"""

import base64
import binascii
from functools import lru_cache
from typing import Any

import msgspec

from streams.core.serdes.serdes import BYTES, STRING, PinnedSerde, Serde
from streams.values import BAD_INPUT, Form, form_of, json_type
from streams.web.answers import Refused

KEY_FORMATS = ("text", "json", "hex", "base64")


def key_of(serde: Serde[Any], data: bytes, key_format: str | None) -> Any:
    """Parse a key from text, given as bytes, by the serde of a store or a topic.

    ``key_format`` is ``text`` (the default), ``json``, or ``hex`` or ``base64`` (with either alphabet) for the
    serialized key.

    Raises:
        Refused: the text is not a key of this type.
    """
    if key_format not in (None, *KEY_FORMATS):
        raise Refused(400, "BAD_KEY", f"key_format={key_format[:20]} is none of {', '.join(KEY_FORMATS)}")
    serde = settled(serde)
    try:
        return serde.deserialize(_serialized(serde, data, key_format))
    except (*BAD_INPUT, binascii.Error) as error:
        raise Refused(400, "BAD_KEY", f"the key does not fit: keys here are {serde.name}: {error}") from None


def _serialized(serde: Serde[Any], data: bytes, key_format: str | None) -> bytes | None:
    if key_format == "hex":
        return bytes.fromhex(data.decode("ascii"))
    if key_format == "base64":
        text = data.replace(b"-", b"+").replace(b"_", b"/")
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    form = _form_of(serde)
    if key_format == "json":
        serialized = form.from_json(data)
    elif serde is BYTES:
        return data
    elif serde is STRING:
        return data.decode().encode()
    elif json_type(serde) is None:
        serialized = form.from_cells(data.decode())
    else:
        serialized = form.from_json(data)
    # JSON is passed unchecked; the key's own bytes are canonical.
    return serde.serialize(serde.deserialize(serialized))


def json_of(serde: Serde[Any], value: Any) -> msgspec.Raw:
    """Return a key or value as JSON, in the form of ``.records.jsonl`` files."""
    serde = settled(serde)
    return msgspec.Raw(_form_of(serde).to_json(serde.serialize(value)))


@lru_cache(maxsize=1_000)
def _form_of(serde: Serde[Any]) -> Form:
    """Return the text form of a serde; it is cached, since creating one takes longer than a query."""
    return form_of(serde)


def settled(serde: Serde[Any]) -> Serde[Any]:
    """Return the serde with the type set at runtime, for a store without a declared type; other serdes unchanged."""
    return serde.settled if isinstance(serde, PinnedSerde) and serde.settled is not None else serde
