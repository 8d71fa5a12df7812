"""A topology within Spark Structured Streaming: each micro-batch of a query continues one replay.

The rows of a batch become files of the history, in a folder named after the batch ID, and the replay is resumed with
them.  If a batch is repeated, its files, slice and outputs already exist, so each batch is processed exactly once.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define

from streams.core.errors import ConfigError, InputError
from streams.core.topic import TopicLike, topic_name
from streams.dsl import TopologySource
from streams.replay.api import replay
from streams.replay.run.result import ReplayResult
from streams.replay.storage.places import Place

#: The file that Spark writes when a folder is complete.
_DONE = "_SUCCESS"


@define(eq=False)
class MicroBatches:
    """Processes the micro-batches of a streaming query; to be passed to ``DataStreamWriter.foreachBatch``.

    ``topic`` is the source topic that the rows of each batch belong to; batches are in the order of their IDs.
    ``directory`` contains the history, the state and the position; a restart continues from these and from the
    checkpoint of the query.  ``on_result`` is called with the result after each batch, which covers all batches so far;
    it can write outputs with ``ReplayResult.write``, which writes each slice once.  ``options`` are further arguments
    of ``replay``.
    The outputs, stores and snapshot after a batch are those of one replay over the rows of all batches.
    """

    topology: TopologySource
    topic: TopicLike
    directory: str | os.PathLike[str]
    on_result: Callable[[ReplayResult], None]
    options: Mapping[str, Any] = {}

    def __attrs_post_init__(self) -> None:
        for name in ("directory", "resume", "spark", "state_from", "until"):
            if name in self.options or getattr(self.options.get("plan"), name, None):
                raise ConfigError(f"option {name!r} of a replay in micro-batches is set by the batches; leave it out")

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Process a batch.

        Raises:
            StreamsError: the replay failed; the query fails, and repeats the batch when it is started again.  Rows
                that cannot be read are not kept, so that a repeated batch may have others.
        """
        root = Place(os.fspath(self.directory)).absolute()
        rows = root.child("batches", f"{batch_id:012d}")
        is_new = not rows.child(_DONE).exists()
        if is_new:
            if frame.isEmpty():
                return
            frame.write.mode("overwrite").parquet(rows.uri)
        try:
            result = self._replayed(root, frame)
        except InputError:
            if is_new:
                rows.delete()
            raise
        with result:
            self.on_result(result)

    def _replayed(self, root: Place, frame: Any) -> ReplayResult:
        """Continue the replay with the rows in the folder of the batches."""
        inputs = {topic_name(self.topic, "the topic of micro-batches"): root.child("batches").uri}
        return replay(
            self.topology,
            inputs,
            spark=None if self.options.get("executor") == "local" else frame.sparkSession,
            directory=root.child("work").uri,
            resume=True,
            **self.options,
        )
