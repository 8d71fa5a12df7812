"""The base classes of requests and responses; each request class names the class of its response."""

from sys import modules
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, get_args

R = TypeVar("R", bound="Response")
R_co = TypeVar("R_co", bound="Response", covariant=True)


class Response:
    """The base class of all responses."""

    __slots__ = ()


class RequestFor(Generic[R_co]):
    """The base class of all requests; ``R_co`` is the class of the response.

    Request classes give the response class by name, because it is defined later in the module.
    """

    __slots__ = ()

    #: The ``protocol.schema.Api`` of a request that ``api`` declares.
    api: ClassVar[Any]


#: A request for any response.
Request: TypeAlias = RequestFor[Any]


class ClientInformation(NamedTuple):
    """The client that sent a request, as the broker sees it.

    - ``client_id``: the setting of the client.
    - ``host``: its address as written in Java ("/127.0.0.1"), or "" for a client in the broker process.
    """

    client_id: str = ""
    host: str = ""


#: A client about which the broker has no information.
UNKNOWN_CLIENT: Final = ClientInformation()


def response_type(request_type: type[RequestFor[R]]) -> type[R]:
    """Return the response class of a request class."""
    *_, base = request_type.__orig_bases__  # type: ignore[attr-defined]
    (name,) = get_args(base)
    response: type[R] = getattr(modules[request_type.__module__], name.__forward_arg__)
    return response


def checked(request: RequestFor[R], response: Response) -> R:
    """Return ``response`` with its static type, after asserting that it is a response to ``request``."""
    expected = response_type(type(request))
    assert isinstance(response, expected), f"{type(request).__name__} was answered by {type(response).__name__}"
    return response
