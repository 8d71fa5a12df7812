"""The base classes of requests and responses: a request class names the class of its response."""

from sys import modules
from typing import Any, Generic, TypeAlias, TypeVar, get_args

R = TypeVar("R", bound="Response")
R_co = TypeVar("R_co", bound="Response", covariant=True)


class Response:
    """The response to a request."""

    __slots__ = ()


class RequestFor(Generic[R_co]):
    """A request for a response of type ``R_co``, given by name, because it is defined later in the module."""

    __slots__ = ()


#: A request for any response.
Request: TypeAlias = RequestFor[Any]


def response_type(request_type: type[RequestFor[R]]) -> type[R]:
    """Return the type of the response to a type of request."""
    (base,) = request_type.__orig_bases__  # type: ignore[attr-defined]
    (name,) = get_args(base)
    found: type[R] = getattr(modules[request_type.__module__], name.__forward_arg__)
    return found


def checked(request: RequestFor[R], response: Response) -> R:
    """Return the response with its static type; the assertion fails if it is not a response to this request."""
    expected = response_type(type(request))
    assert isinstance(response, expected), f"{type(request).__name__} was answered by {type(response).__name__}"
    return response
