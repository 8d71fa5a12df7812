"""Checks a custom sink: kills its worker at each step, many times, and checks the rows against its guarantee.

``check`` is the entry point; ``faults`` wraps the sink, ``victims`` are the workers that are killed, in this process or
in ones of their own, ``judgement`` compares the rows, and ``contract`` calls the methods without a worker.
"""

from streams.testing.sink_kit.check import check as check
from streams.testing.sink_kit.faults import SinkStep as SinkStep
from streams.testing.sink_kit.judgement import SinkKitError as SinkKitError
from streams.testing.sink_kit.judgement import SinkReport as SinkReport
