"""Translations of EndTxn and TxnOffsetCommit, whose meaning depends on the version (KIP-890, second part).

From version 5 on, EndTxn gives the producer its next epoch, and TxnOffsetCommit adds the group to the transaction.
"""

from typing import Final

from attrs import evolve

from streams.protocol.messages import EndTxn, TxnOffsetCommit
from streams.protocol.request import ClientInformation
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import RequestParts, limited
from streams.protocol.wire.mapping.derived import derived
from streams.protocol.wire.tables import transactions as tables

#: First version of both for producers of transaction version 2.
_SECOND: Final = 5

_END = derived(tables.END_TXN)
_COMMIT = derived(tables.TXN_OFFSET_COMMIT)


def _end_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[EndTxn]:
    (request,) = _END.parse_request(message, version, client).requests
    return RequestParts((evolve(request, bumps_epoch=version >= _SECOND),))


def _commit_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[TxnOffsetCommit]:
    (request,) = _COMMIT.parse_request(message, version, client).requests
    return RequestParts((evolve(request, adds_group=version >= _SECOND),))


END_TXN = evolve(_END, parse_request=_end_request, limit=limited(_SECOND, lambda request: request.bumps_epoch))
TXN_OFFSET_COMMIT = evolve(
    _COMMIT, parse_request=_commit_request, limit=limited(_SECOND, lambda request: request.adds_group)
)

TRANSLATIONS = (END_TXN, TXN_OFFSET_COMMIT)
