"""Tokens for Amazon MSK with IAM, by AWS's signer library (extra ``msk``).

This module imports only ``core``; the library is imported when a provider is created.
"""

import os
from collections.abc import Callable

from attrs import define

from streams.core.errors import ConfigError
from streams.core.http.oauth import OAuthToken, TokenProvider
from streams.core.installation import pip_install

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def msk_iam(region: str = "") -> TokenProvider:
    """Return a provider of tokens for ``sasl_oauthbearer_token_provider``, with the credentials that boto3 finds.

    ``region`` is the region of the cluster; default: ``AWS_REGION`` or ``AWS_DEFAULT_REGION`` of the environment.

    Raises:
        ConfigError: the signer library is not installed, or there is no region.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            f"tokens of MSK need aws-msk-iam-sasl-signer-python, which is not installed; {pip_install('msk')}"
        ) from error
    region = region or next((value for name in _REGIONS if (value := os.environ.get(name))), "")
    if not region:
        raise ConfigError("tokens of MSK need the region of the cluster: pass msk_iam('eu-west-1'), or set AWS_REGION")
    return _Signed(MSKAuthTokenProvider.generate_auth_token, region)


@define(eq=False)
class _Signed:
    """A provider of signed tokens; all connections use one token until it expires."""

    _sign: Callable[[str], tuple[str, int]]
    region: str

    def __repr__(self) -> str:
        return f"msk_iam({self.region!r})"

    def __call__(self) -> OAuthToken:
        """Return a new token."""
        value, expires_ms = self._sign(self.region)
        return OAuthToken(value, expires_ms)
