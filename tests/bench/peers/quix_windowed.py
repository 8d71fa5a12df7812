"""``quix_windowed.py INPUT OUTPUT``: a tumbling count per key by Quix Streams that carries the last record's `t`.

Run by the interpreter that has Quix Streams; knows nothing of the project.  Variables BOOTSTRAP and LAB.
"""

import os
import sys
import uuid


def main() -> None:
    from quixstreams import Application  # type: ignore[import-not-found,unused-ignore]

    source, sink = sys.argv[1:]
    group = f"lat-windowed-{uuid.uuid4().hex[:8]}"
    application = Application(
        os.environ["BOOTSTRAP"],
        consumer_group=group,
        auto_offset_reset="earliest",
        loglevel="ERROR",
        state_dir=f"{os.environ['LAB']}/state/{group}",
    )
    stream = application.dataframe(application.topic(source, value_deserializer="json", key_deserializer="str"))
    counted = stream.tumbling_window(10_000, grace_ms=5_000).reduce(
        lambda seen, value: {"count": seen["count"] + 1, "t": value["t"]}, lambda value: {"count": 1, "t": value["t"]}
    )
    updates = counted.current().apply(lambda window: window["value"])
    updates.to_topic(application.topic(sink, value_serializer="json", key_serializer="str"))
    application.run()


if __name__ == "__main__":
    main()
