"""Checks a custom source: kills its worker at each step, many times, and compares the topic with the records.

``check`` is the entry point; ``faults`` wraps the source and the cluster.
"""

from streams.testing.source_kit.check import SourceKitError as SourceKitError
from streams.testing.source_kit.check import SourceReport as SourceReport
from streams.testing.source_kit.check import check as check
from streams.testing.source_kit.faults import SourceStep as SourceStep
