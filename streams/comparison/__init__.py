"""Comparison of two versions of a topology that have replayed the same history: outputs, windows and stores."""

from streams.comparison.compare import Comparison as Comparison
from streams.comparison.compare import compare as compare
from streams.comparison.differences import LAST as LAST
from streams.comparison.differences import ONLY_NEW as ONLY_NEW
from streams.comparison.differences import ONLY_OLD as ONLY_OLD
from streams.comparison.differences import ORDER as ORDER
from streams.comparison.differences import RETYPED as RETYPED
from streams.comparison.differences import TIMES as TIMES
from streams.comparison.differences import UPDATES as UPDATES
from streams.comparison.differences import EntryDifference as EntryDifference
from streams.comparison.differences import KeyDifference as KeyDifference
from streams.comparison.differences import Side as Side
from streams.comparison.differences import StoreComparison as StoreComparison
from streams.comparison.differences import TopicComparison as TopicComparison
from streams.comparison.matching import fingerprint as fingerprint
from streams.comparison.matching import paired_stores as paired_stores
from streams.comparison.takeover import Finding as Finding
from streams.comparison.takeover import Level as Level
from streams.comparison.takeover import StoreFate as StoreFate
from streams.comparison.takeover import TakeOver as TakeOver
from streams.comparison.takeover import take_over as take_over
from streams.comparison.topics import KeyBuckets as KeyBuckets
from streams.comparison.versions import Version as Version
