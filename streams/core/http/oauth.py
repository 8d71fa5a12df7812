"""OAuth tokens for SASL/OAUTHBEARER: results of token providers (clients) and of token checks (brokers).

Applications supply the provider and check functions; clients and brokers call them.  See KIP-255 and RFC 7628.
This module imports only ``core.errors``.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from attrs import field, frozen

from streams.core.errors import ConfigError


@frozen
class OAuthToken:
    """A token for the SASL mechanism OAUTHBEARER.

    ``expires_ms`` is the epoch time in milliseconds at which the token expires; with None, the token is used for one
    connection only.  ``extensions`` are SASL extensions (KIP-342), such as ``{"logicalCluster": "lkc-1"}``.
    """

    value: str = field(repr=False)
    expires_ms: int | None = None
    extensions: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(cls, answer: Any, who: str) -> "OAuthToken":
        """Return the token that a provider has returned; a JWT given as text expires at its claim ``exp``.

        Raises:
            ConfigError: the provider returned neither an ``OAuthToken`` nor a non-empty text.
        """
        if isinstance(answer, OAuthToken):
            return answer
        if not isinstance(answer, str) or not answer:
            raise ConfigError(
                f"{who} returned {type(answer).__qualname__}, not an OAuthToken or the text of a token: return one"
            )
        expires_s = claims_of(answer).get("exp")
        is_number = isinstance(expires_s, int | float) and not isinstance(expires_s, bool)
        return cls(answer, int(expires_s * 1000) if is_number else None)  # type: ignore[operator]


@frozen
class OAuthUser:
    """The user that a broker has authenticated by a token.

    The client must reauthenticate before ``expires_ms``, an epoch time in milliseconds (KIP-368); None: never.
    """

    name: str
    expires_ms: int | None = None


#: Returns a new token: an ``OAuthToken``, or the text of a JWT, whose claim ``exp`` says when it expires.
TokenProvider: TypeAlias = Callable[[], OAuthToken | str]
#: Checks the text of a token for a broker; raises ``ValueError`` with the reason, which the client is told.
TokenCheck: TypeAlias = Callable[[str], OAuthUser]


def claims_of(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT without verifying its signature; empty if the text is not a JWT.

    >>> claims_of("e30.eyJzdWIiOiJhIn0.")
    {'sub': 'a'}
    """
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}
