"""Times of rows that have none: in a replay that needs no event time, rows are 1 ms apart."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from streams.core.errors import InputError
from streams.core.event_time.time_texts import time_text
from streams.core.settings.config import StreamsConfig
from streams.replay.history.inputs import Files, Input
from streams.replay.history.intake import TopicFiles
from streams.replay.history.slicing import Slicing
from streams.topology import ProcessorOperator, Topology

log = logging.getLogger(__name__)
#: The times of rows that have none, for messages.
ROW_TIMES = f"1 ms apart from {time_text(0)} on"


def needs_time(
    topology: Topology, config: StreamsConfig, inputs: Mapping[str, Input], until: Any, slicing: Slicing | None
) -> str:
    """Return what needs the event times of rows; "" if nothing does, so that rows without one may be 1 ms apart."""
    timed = [topic for topic, source in inputs.items() if not isinstance(source, Files)]
    timed += [topic for source in topology.all_sources() if source.extractor is not None for topic in source.topics]
    if timed:
        return f"a replay with the times of topic {timed[0]!r}"
    specs = [*topology.stores.values(), *(store.spec for store in topology.global_stores.values())]
    stores = [f"store {spec.name!r}" for spec in specs if spec.uses_event_time]
    timers = [
        f"a punctuation of node {name!r}"
        for name, node in topology.nodes.items()
        if isinstance(operator := getattr(node, "operator", None), ProcessorOperator)
        and operator.punctuates_in_stream_time
    ]
    options = {
        "an end in event time (until)": until is not None and not isinstance(until, Mapping),
        "a span of event time (slices)": slicing is not None and slicing.span_ms is not None,
        "default_timestamp_extractor": callable(config.default_timestamp_extractor),
    }
    return next(iter([*stores, *timers, *(name for name, is_used in options.items() if is_used)]), "")


def say_row_times(read: Sequence[TopicFiles]) -> None:
    """Say once that rows have no times.

    Raises:
        InputError: some rows have a time, and others have none.
    """
    names = ", ".join(files.paths[0] if len(files.paths) == 1 else files.topic for files in read if files.untimed)
    if not names:
        return
    untimed, rows = sum(files.untimed for files in read), sum(files.records for files in read)
    if untimed < rows:
        raise InputError(f"{names}: {untimed:,} of {rows:,} rows have no time; give all of them one, or none")
    log.warning("%s: rows have no times, so they are %s", names, ROW_TIMES)
