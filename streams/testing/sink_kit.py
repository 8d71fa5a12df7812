"""Checks a custom sink: kills its worker at each step, many times, and checks the rows against its guarantee.

``check`` is the entry point.
"""

from streams.testing.kit.sink_check import check as check
from streams.testing.kit.sink_faults import SinkStep as SinkStep
from streams.testing.kit.sink_rows import SinkKitError as SinkKitError
from streams.testing.kit.sink_rows import SinkReport as SinkReport
