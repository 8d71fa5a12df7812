"""Translation between the messages that we speak in process and those of Kafka's protocol, both ways.

A client asks with ``ask`` and reads with ``answer``; a broker reads with ``asked`` and answers with
``answered``.  APIs that have no message of ours (versions, authentication, settings of topics) are
answered from their dicts by whoever serves them; requests of ours that Kafka does not have are in
``WITHOUT_API``.  Above ``codec``, beside ``framing``; imports protocol and core.
"""

from collections.abc import Sequence
from typing import Final

from streams.protocol.messages import CreateGroup, Request, ResetOffsets, Response
from streams.protocol.wire.errors import MalformedError, UnsupportedVersionError
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping import groups, offsets, records, topics, transactions
from streams.protocol.wire.mapping.base import AnyIncoming, AnyTranslation, Incoming, Serving
from streams.protocol.wire.mapping.topics import described_cluster

__all__ = [
    "AnyIncoming",
    "Incoming",
    "Serving",
    "TRANSLATIONS",
    "WITHOUT_API",
    "answer",
    "answered",
    "ask",
    "asked",
    "described_cluster",
    "is_answered",
    "key_of",
    "versions_of",
]

#: Translations by API key.
TRANSLATIONS: Final[dict[int, AnyTranslation]] = {
    translation.api_key: translation
    for translation in (
        *records.TRANSLATIONS,
        *topics.TRANSLATIONS,
        *groups.TRANSLATIONS,
        *offsets.TRANSLATIONS,
        *transactions.TRANSLATIONS,
    )
}
#: Requests that Kafka does not have.
WITHOUT_API: Final = (CreateGroup, ResetOffsets)

_BY_REQUEST: Final[dict[type, AnyTranslation]] = {
    translation.request: translation for translation in TRANSLATIONS.values()
}


def key_of(request: Request) -> int:
    """Return the API key of a request.

    Raises:
        UnsupportedVersionError: Kafka has no such request.
    """
    return _translation(request).api_key


def versions_of(api_key: int) -> tuple[int, int]:
    """Return lowest and highest version of an API in which our messages can be said.

    Raises:
        UnsupportedVersionError: we have no message for it.
    """
    return _by_key(api_key, -1).versions


# --- the client's side --------------------------------------------------------------------


def ask(request: Request, version: int) -> tuple[int, Fields]:
    """Return API key and message of a request.

    Raises:
        UnsupportedVersionError: Kafka has no such request.
        EncodingError: what it says has no place in this version.
    """
    translation = _translation(request)
    return translation.api_key, translation.ask(request, version)


def is_answered(request: Request) -> bool:
    """Whether the broker answers at all: a produce request with acks 0 it does not."""
    return getattr(request, "acks", -1) != 0


def answer(request: Request, version: int, message: Fields) -> Response:
    """Return the response to a request that was asked in this version.

    Raises:
        BrokerError: the response as a whole is an error, for which ours has no place.
        MalformedError: the response is not to this request.
    """
    translation = _translation(request)
    try:
        response: Response = translation.answer(message, version, request)
    except ValueError as error:
        raise MalformedError(
            f"not an answer to what was asked: {error}", api=translation.response.__name__, version=version
        ) from error
    return response


# --- the broker's side --------------------------------------------------------------------


def asked(api_key: int, version: int, message: Fields, client_id: str | None = None) -> AnyIncoming:
    """Return what a client asks for; ``Incoming.requests`` are to be answered one by one.

    Raises:
        UnsupportedVersionError: we have no message for the API, or not for this version.
    """
    translation = _by_key(api_key, version)
    low, high = translation.versions
    if not low <= version <= high:
        raise UnsupportedVersionError(
            f"API {api_key} version {version} is not served: {low} to {high} are", api_key=api_key, version=version
        )
    requests, refused = translation.asked(message, version, client_id or "")
    return Incoming(api_key, version, message, requests, refused)


def answered(incoming: AnyIncoming, responses: Sequence[Response], serving: Serving) -> Fields:
    """Return the message that answers what has come; one response for each of its requests, in order."""
    assert len(responses) == len(incoming.requests)
    message: Fields = _by_key(incoming.api_key, incoming.version).answered(incoming, responses, serving)
    return message


def _translation(request: Request) -> AnyTranslation:
    translation = _BY_REQUEST.get(type(request))
    if translation is None:
        raise UnsupportedVersionError(
            f"{type(request).__name__} is no request of Kafka's: only the embedded broker answers it",
            api_key=-1,
            version=-1,
        )
    return translation


def _by_key(api_key: int, version: int) -> AnyTranslation:
    translation = TRANSLATIONS.get(api_key)
    if translation is None:
        raise UnsupportedVersionError(
            f"API {api_key} has no message of ours: it is answered as it is", api_key=api_key, version=version
        )
    return translation
