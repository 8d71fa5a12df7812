"""Checks a sink of one's own: kills its worker at each step, many times, and compares the rows with its guarantee.

``check`` is the whole of it; ``faults`` wraps the sink, ``victims`` are the workers that are killed, in this process or
in ones of their own, ``judgement`` compares the rows, and ``contract`` calls the methods without a worker.
"""

from streams.testing.sink_kit.check import check as check
from streams.testing.sink_kit.faults import SinkStep as SinkStep
from streams.testing.sink_kit.judgement import SinkKitError as SinkKitError
from streams.testing.sink_kit.judgement import SinkReport as SinkReport
