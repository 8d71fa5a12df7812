"""All Kafka APIs that can be encoded and decoded, by API key, with their versions."""

from typing import Final

from streams.protocol.wire.errors import UnsupportedVersionError
from streams.protocol.wire.fields import Api
from streams.protocol.wire.tables import (
    groups,
    operations,
    records,
    session,
    streams_groups,
    topics,
    transactions,
)

#: Every API by its key.
APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in sorted(
        (
            *session.APIS,
            *records.APIS,
            *groups.APIS,
            *streams_groups.APIS,
            *topics.APIS,
            *transactions.APIS,
            *operations.APIS,
        ),
        key=lambda api: api.key,
    )
}
API_VERSIONS: Final = session.API_VERSIONS.key


def served_versions() -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version of every API that the embedded broker serves, by API key."""
    return {key: api.served for key, api in APIS.items() if api.served is not None}


def all_versions() -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version of every API that can be encoded and decoded, by API key."""
    return {key: api.versions for key, api in APIS.items()}


def api_of(key: int, version: int) -> Api:
    """Return the API with this key, which must support this version.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
    """
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersionError(f"API {key} is not spoken here", api_key=key, version=version)
    if not api.has(version):
        low, high = api.versions
        raise UnsupportedVersionError(
            f"{api.name} version {version} is not spoken here: {low} to {high} are", api_key=key, version=version
        )
    return api
