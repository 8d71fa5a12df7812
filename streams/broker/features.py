"""The APIs and the features that this broker tells to clients (KIP-35, KIP-584)."""

from collections.abc import Mapping
from typing import Final

from streams.protocol.admin_messages import (
    TRANSACTION_VERSION,
    ApiVersionsResponse,
    FinalizedLevels,
    VersionRange,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Produce
from streams.protocol.wire import served_versions

#: Lowest and highest served version by API key (``served`` in the tables).
VERSIONS: Final[Mapping[int, tuple[int, int]]] = served_versions()
#: Producers use transactions of version 2, unless they know only the first.  Java's clients refuse level 0.
_SUPPORTED: Final = {TRANSACTION_VERSION: VersionRange(1, 2)}
_FINALIZED: Final = {TRANSACTION_VERSION: FinalizedLevels(2, 1)}


def served() -> ApiVersionsResponse:
    """Return the version ranges of all served APIs, and the features."""
    ranges = {key: VersionRange(*versions) for key, versions in sorted(VERSIONS.items())}
    # Versions 0 to 2 are not served, but librdkafka before 2.11 does not compress unless it sees them (KAFKA-18659).
    ranges[Produce.api.key] = VersionRange(0, VERSIONS[Produce.api.key][1])
    return ApiVersionsResponse(ErrorCode.NONE, ranges, _SUPPORTED, 0, _FINALIZED)
