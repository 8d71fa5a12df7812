"""Share groups in the broker: who gets which records, what becomes of them, and where that is stored (KIP-932).

``partition`` is the state of one partition for one group, ``state_log`` its records, ``store`` keeps all of them in the
log, ``sessions`` are those of members, ``desk`` answers what members ask, and ``offsets`` what tools ask.
"""

from streams.broker.shares.desk import ShareDesk as ShareDesk
from streams.broker.shares.offsets import HANDLERS as HANDLERS
from streams.broker.shares.sessions import ShareSession as ShareSession
from streams.broker.shares.store import SHARES_PARTITION as SHARES_PARTITION
from streams.broker.shares.store import ShareStore as ShareStore

__all__ = ["HANDLERS", "SHARES_PARTITION", "ShareDesk", "ShareSession", "ShareStore"]
