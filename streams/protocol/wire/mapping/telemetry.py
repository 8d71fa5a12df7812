"""Translations of the APIs by which clients push their metrics: their requests say which client has sent them."""

from streams.protocol.wire.mapping.base import with_client
from streams.protocol.wire.mapping.derived import derived
from streams.protocol.wire.tables import telemetry as tables

TRANSLATIONS = tuple(with_client(derived(api), lambda client: {"client": client}) for api in tables.TELEMETRY_APIS)
