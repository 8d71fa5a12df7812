"""From a replay to the live application: snapshots, cutover, going live, publishing."""

from streams.replay.handover.contents import differences, shown
from streams.replay.handover.cutover import check_history
from streams.replay.handover.golive import GoneLive, go_live, lay_down, origin_of
from streams.replay.handover.publish import publish, publish_group
from streams.replay.handover.snapshot import Snapshot

__all__ = [
    "GoneLive",
    "Snapshot",
    "check_history",
    "differences",
    "go_live",
    "lay_down",
    "origin_of",
    "publish",
    "publish_group",
    "shown",
]
