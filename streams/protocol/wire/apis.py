"""All Kafka APIs that can be encoded and decoded, by API key, with their versions."""

from typing import Final

from streams.protocol import admin_messages, group_messages, messages, streams_group_messages
from streams.protocol.schema import Api
from streams.protocol.wire.by_hand import BY_HAND
from streams.protocol.wire.errors import UnsupportedVersionError

_MODULES: Final = (admin_messages, group_messages, messages, streams_group_messages)
_REQUESTS: Final = {
    kind for module in _MODULES for kind in vars(module).values() if "api" in getattr(kind, "__dict__", ())
}
_DECLARED: Final[dict[int, Api]] = {kind.api.key: kind.api for kind in _REQUESTS}

#: Every API by its key.
APIS: Final = {key: BY_HAND[key].api if key in BY_HAND else api for key, api in sorted(_DECLARED.items())}
API_VERSIONS: Final[int] = admin_messages.ApiVersions.api.key


def served_versions() -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version of every API that the embedded broker serves, by API key."""
    return {key: api.versions for key, api in APIS.items()}


def api_of(key: int, version: int) -> Api:
    """Return the API with this key, which must support this version.

    Raises:
        UnsupportedVersionError: the API or this version is not supported.
    """
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersionError(f"API {key} is not spoken here", api_key=key, version=version)
    low, high = api.versions
    if not low <= version <= high:
        raise UnsupportedVersionError(
            f"{api.name} version {version} (API {key}) is not spoken here: {low} to {high} are",
            api_key=key,
            version=version,
        )
    return api
