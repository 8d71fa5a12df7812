"""The JSON form of values whose topic has a format other than JSON, for files and HTTP responses."""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from attrs import frozen

from streams.core.errors import TopologyError
from streams.core.serdes.exact_texts import JsonDecoder
from streams.core.serdes.serde_models import FORM_ERRORS, codec_of, encode_hook
from streams.core.serdes.serdes import is_immutable_form
from streams.values import cell_converter


@frozen
class JsonForm:
    """Conversions between values of a type and JSON; bytes are encoded as base64."""

    decoder: JsonDecoder
    #: From JSON that is parsed already.
    from_plain: Callable[[Any], Any]
    to_json: Callable[[Any], bytes]
    is_immutable: bool

    @property
    def from_json(self) -> Callable[[bytes], Any]:
        """The function that returns the value of JSON."""
        return self.decoder.one


def json_form(form: Any) -> JsonForm:
    """Return the JSON form of a class or type expression, pydantic models included.

    Raises:
        TopologyError: there is no JSON for the form.
    """
    try:
        decoder = codec_of(form).decoder
    except FORM_ERRORS as error:
        raise TopologyError(f"no JSON form, as files and HTTP need it, for {form!r}: {error}") from error

    from_plain = cell_converter(form, _validated, strict=True)
    return JsonForm(decoder, from_plain, _ENCODE, is_immutable_form(form))


def _validated(cls: Any, value: Any) -> Any:
    """Return a validated instance of a pydantic model, from JSON, in which alone a strict model takes times as text."""
    if not hasattr(cls, "model_validate_json"):
        raise NotImplementedError(f"{cls.__qualname__} has no JSON form")
    return _decoder_of(cls)(_ENCODE(value))


@cache
def _decoder_of(cls: Any) -> Callable[[bytes], Any]:
    return codec_of(cls).decoder.one


_ENCODE = msgspec.json.Encoder(enc_hook=encode_hook).encode
