"""Translation of EndTxn.

The producer epoch is bumped only in versions whose response includes the epoch (KIP-890).
"""

from attrs import evolve

from streams.protocol.messages import EndTxn
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import Client, RequestParts
from streams.protocol.wire.mapping.derived import derived
from streams.protocol.wire.tables import transactions as tables

_END = derived(tables.END_TXN)


def _end_request(message: Fields, version: int, client: Client) -> RequestParts[EndTxn]:
    # Only versions from 5 on return the new epoch: older clients keep their epoch.
    (request,) = _END.parse_request(message, version, client).requests
    return RequestParts((evolve(request, bumps_epoch=False),))


END_TXN = evolve(_END, parse_request=_end_request)

TRANSLATIONS = (END_TXN,)
