"""Translation between message classes (``protocol.messages``) and Kafka protocol fields, in both directions.

A client encodes with ``ask`` and decodes with ``answer``; a broker decodes with ``asked`` and encodes with
``answered``.  The translation of an API is ``derived`` from its table and messages.  The exceptions are in ``groups``,
``records``, ``topics`` and ``transactions``, where the translation depends on the version or the client.
Requests without a Kafka API are in ``WITHOUT_API``.  Uses ``codec``; imports ``protocol`` and ``core``.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from streams.protocol.group_messages import CreateGroup, ResetOffsets
from streams.protocol.request import Request, Response
from streams.protocol.wire.apis import APIS
from streams.protocol.wire.errors import MalformedError, UnsupportedVersionError
from streams.protocol.wire.fields import Api, Fields
from streams.protocol.wire.mapping import groups, records, topics, transactions
from streams.protocol.wire.mapping.base import AnyIncoming, AnyTranslation, Client, Incoming, Serving
from streams.protocol.wire.mapping.derived import derived

__all__ = [
    "AnyIncoming",
    "BY_HAND",
    "Incoming",
    "Serving",
    "WITHOUT_API",
    "answer",
    "answered",
    "api_of_request",
    "ask",
    "asked",
    "is_answered",
    "key_of",
    "translation_of",
    "versions_of",
]

#: Hand-written translations by API key.
BY_HAND: Final[dict[int, AnyTranslation]] = {
    translation.api.key: translation
    for module in (records, topics, groups, transactions)
    for translation in module.TRANSLATIONS
}
#: Requests without a Kafka API.
WITHOUT_API: Final = (CreateGroup, ResetOffsets)

_API_OF: Final[dict[type[Any] | None, Api]] = {api.request_type: api for api in APIS.values()}


def api_of_request(request: Request) -> Api:
    """Return the API of a request.

    Raises:
        UnsupportedVersionError: the request has no Kafka API.
    """
    api = _API_OF.get(type(request))
    if api is None:
        raise UnsupportedVersionError(
            f"{type(request).__name__} is not a Kafka request: only the embedded broker supports it",
            api_key=-1,
            version=-1,
        )
    return api


def key_of(request: Request) -> int:
    """Return the API key of a request.

    Raises:
        UnsupportedVersionError: the request has no Kafka API.
    """
    return api_of_request(request).key


@cache
def translation_of(api_key: int) -> AnyTranslation:
    """Return the translation of an API; a derived one is generated on first use.

    Raises:
        UnsupportedVersionError: the API is unknown, or has no message classes.
    """
    found = BY_HAND.get(api_key)
    if found is not None:
        return found
    api = APIS.get(api_key)
    if api is None or api.request_type is None:
        name = f"API {api_key}" if api is None else f"{api.name} (API {api_key})"
        raise UnsupportedVersionError(f"{name} has no messages here", api_key=api_key, version=-1)
    return derived(api)


def versions_of(api_key: int) -> tuple[int, int]:
    """Return the lowest and highest version of an API that the message classes support.

    Raises:
        UnsupportedVersionError: the API is unknown, or has no message classes.
    """
    return translation_of(api_key).versions


# --- the client's side --------------------------------------------------------------------


def ask(request: Request, version: int) -> tuple[int, Fields]:
    """Return the API key and fields of a request.

    Raises:
        UnsupportedVersionError: the request has no Kafka API.
        EncodingError: the request cannot be represented in this version.
    """
    api_key = key_of(request)
    return api_key, translation_of(api_key).ask(request, version)


def is_answered(request: Request) -> bool:
    """Whether the broker responds to a request; it does not respond to a produce request with acks=0."""
    return getattr(request, "acks", -1) != 0


def answer(request: Request, version: int, message: Fields) -> Response:
    """Decode the response to a request that was sent in this version.

    Raises:
        BrokerError: the response has a top-level error, for which the message class has no attribute.
        MalformedError: the response does not match this request.
    """
    api = api_of_request(request)
    try:
        response: Response = translation_of(api.key).answer(message, version, request)
    except ValueError as error:
        raise MalformedError(
            f"the response does not match the request: {error}", api=f"{api.name}Response", version=version
        ) from error
    return response


# --- the broker's side --------------------------------------------------------------------


def asked(
    api_key: int, version: int, message: Fields, client_id: str | None = None, client_host: str = ""
) -> AnyIncoming:
    """Decode a client's request; each of ``Incoming.requests`` needs a response.

    Raises:
        UnsupportedVersionError: the API has no message classes, or they do not support this version.
    """
    translation = translation_of(api_key)
    low, high = translation.versions
    if not low <= version <= high:
        raise UnsupportedVersionError(
            f"{translation.api.name} (API {api_key}) version {version} is not served: {low} to {high} are",
            api_key=api_key,
            version=version,
        )
    found = translation.asked(message, version, Client(client_id or "", client_host))
    return Incoming(api_key, version, *found)


def answered(incoming: AnyIncoming, responses: Sequence[Response], serving: Serving) -> Fields:
    """Encode the response from one response for each of ``Incoming.requests``, in order."""
    assert len(responses) == len(incoming.requests)
    message: Fields = translation_of(incoming.api_key).answered(incoming, responses, serving)
    return message
