"""Translation between message classes (``protocol.messages``) and Kafka protocol fields, in both directions.

A client uses ``build_request`` and ``parse_response``; a broker uses ``parse_request`` and ``build_response``.
Most translations are ``derived`` from the message classes of an API.  Those whose form depends on the version or the
client are in ``by_hand``.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import UNKNOWN_CLIENT, ClientInformation, Request, Response
from streams.protocol.schema import Api, Fields
from streams.protocol.wire.apis import APIS, api_of
from streams.protocol.wire.by_hand import BY_HAND
from streams.protocol.wire.derived import derived
from streams.protocol.wire.errors import MalformedError, UnsupportedVersionError
from streams.protocol.wire.translation import AnyIncoming as AnyIncoming
from streams.protocol.wire.translation import AnyTranslation
from streams.protocol.wire.translation import Incoming as Incoming
from streams.protocol.wire.translation import Serving as Serving

_API_OF: Final[dict[type[Any], Api]] = {api.request_type: api for api in APIS.values()}


def api_of_request(request: Request) -> Api:
    """Return the Kafka API of a request.

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


@cache
def translation_of(api_key: int) -> AnyTranslation:
    """Return the translation of an API; a derived one is generated on first use."""
    return BY_HAND[api_key] if api_key in BY_HAND else derived(APIS[api_key])


# --- the client's side --------------------------------------------------------------------


def build_request(request: Request, version: int) -> tuple[int, Fields]:
    """Return the API key and the Kafka protocol fields of a request.

    Raises:
        UnsupportedVersionError: the request has no Kafka API.
        EncodingError: the request cannot be represented in this version.
    """
    api_key = api_of_request(request).key
    return api_key, translation_of(api_key).build_request(request, version)


def version_for(request: Request, version: int) -> int:
    """Return the version in which a request is sent, given the highest that client and broker support.

    Raises:
        UnsupportedVersionError: the request means something that only later versions can say.
    """
    return translation_of(api_of_request(request).key).limit(request, version)


def is_answered(request: Request) -> bool:
    """Whether the broker responds to a request; it does not respond to a produce request with acks=0."""
    return getattr(request, "acks", -1) != 0


def parse_response(request: Request, version: int, message: Fields) -> Response:
    """Convert decoded fields to the response to ``request``, which was sent in this version.

    Raises:
        MalformedError: the response does not match this request.
    """
    api = api_of_request(request)
    try:
        response: Response = translation_of(api.key).parse_response(message, version, request)
    except ValueError as error:
        raise MalformedError(
            f"the response does not match the request: {error}", api=f"{api.name}Response", version=version
        ) from error
    return response


# --- the broker's side --------------------------------------------------------------------


def parse_request(
    api_key: int, version: int, message: Fields, client: ClientInformation = UNKNOWN_CLIENT
) -> AnyIncoming:
    """Convert the decoded fields of a client's request; each of ``Incoming.requests`` needs a response.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
    """
    api_of(api_key, version)
    return Incoming(api_key, version, *translation_of(api_key).parse_request(message, version, client))


def build_response(incoming: AnyIncoming, responses: Sequence[Response], serving: Serving) -> Fields:
    """Return the fields of the response to a client's request.

    ``responses`` has one response for each of ``Incoming.requests``, in order.
    """
    assert len(responses) == len(incoming.requests)
    message: Fields = translation_of(incoming.api_key).build_response(incoming, responses, serving)
    later_errors = APIS[incoming.api_key].later_errors
    earlier = {code: other for code, (since, other) in later_errors.items() if incoming.version < since}
    if earlier:
        _replace_errors(message, earlier)
    return message


def _replace_errors(value: Any, earlier: Mapping[ErrorCode, ErrorCode]) -> None:
    """Replace error codes in a message and everything within it."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name.endswith("error_code"):
                value[name] = earlier.get(part, part)
            _replace_errors(part, earlier)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _replace_errors(part, earlier)
