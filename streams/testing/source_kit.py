"""Checks a custom source: kills its worker at each step, many times, and compares the topic with the records.

``check`` is the entry point.
"""

from streams.testing.kit.source_check import SourceKitError as SourceKitError
from streams.testing.kit.source_check import SourceReport as SourceReport
from streams.testing.kit.source_check import check as check
from streams.testing.kit.source_faults import SourceStep as SourceStep
