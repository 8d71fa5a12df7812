"""All APIs that are spoken here, by key, and which of their versions.

Gathers ``tables``.  Imports nothing else of ours.
"""

from typing import Final

from streams.protocol.wire.errors import UnsupportedVersionError
from streams.protocol.wire.fields import Api
from streams.protocol.wire.tables import groups, operations, records, session, topics, transactions

#: Every API by its key.
APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in sorted(
        (*session.APIS, *records.APIS, *groups.APIS, *topics.APIS, *transactions.APIS, *operations.APIS),
        key=lambda api: api.key,
    )
}
API_VERSIONS: Final = session.API_VERSIONS.key


def classic_versions() -> dict[int, tuple[int, int]]:
    """Return lowest and highest version by API key of those that are not flexible, but for ApiVersions.

    Every usual client gets by with these.
    """
    return {
        key: api.versions if key == API_VERSIONS else (api.versions[0], min(api.versions[1], api.flexible - 1))
        for key, api in APIS.items()
        if key == API_VERSIONS or api.versions[0] < api.flexible
    }


def all_versions() -> dict[int, tuple[int, int]]:
    """Return lowest and highest version by API key of all that can be encoded and decoded."""
    return {key: api.versions for key, api in APIS.items()}


def api_of(key: int, version: int) -> Api:
    """Return the API of a message.

    Raises:
        UnsupportedVersionError: there is no such API here, or not in this version.
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
