"""Comparison of two versions of a topology over the same history: outputs, windows and stores."""

from streams.comparison.compare import Comparison, compare
from streams.comparison.differences import (
    LAST,
    ONLY_NEW,
    ONLY_OLD,
    ORDER,
    RETYPED,
    TIMES,
    UPDATES,
    EntryDifference,
    KeyDifference,
    Side,
    StoreComparison,
    TopicComparison,
)
from streams.comparison.matching import fingerprint, paired_stores
from streams.comparison.takeover import Finding, Level, StoreFate, TakeOver, take_over
from streams.comparison.topics import KeyBuckets
from streams.comparison.versions import Version

__all__ = [
    "Comparison",
    "EntryDifference",
    "Finding",
    "KeyBuckets",
    "KeyDifference",
    "LAST",
    "Level",
    "ONLY_NEW",
    "ONLY_OLD",
    "ORDER",
    "RETYPED",
    "Side",
    "StoreComparison",
    "StoreFate",
    "TIMES",
    "TakeOver",
    "TopicComparison",
    "UPDATES",
    "Version",
    "compare",
    "fingerprint",
    "paired_stores",
    "take_over",
]
