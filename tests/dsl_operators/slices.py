"""Bounded runs and replays in slices over the same records, which must agree record for record."""

from collections.abc import Callable
from random import Random

from streams import StreamsBuilder, Topic
from tests.replay.outcomes import Row, archived, drive, lived, quick_folder, replayed_outcome, result_of, session_of

ORDERS = Topic("orders", key=str, value=int)


def drawn_orders(partitions: int) -> dict[str, list[Row]]:
    """Return the same 60 records of the topic ``orders`` for each number of partitions."""
    rng, serialize = Random(partitions), ORDERS.value_serde.serialize
    drawn = [(rng.choice("abc"), rng.randrange(9), rng.randrange(400)) for _ in range(60)]
    return {
        "orders": [
            Row("abc".index(key) % partitions, key.encode(), serialize(value), time) for key, value, time in drawn
        ]
    }


def agree_in_slices(pipeline: Callable[[StreamsBuilder], None], inputs: dict[str, list[Row]], partitions: int) -> None:
    """Compare a bounded run with one of shorter polls, and with replays in one slice and in three."""
    once = lived(pipeline, inputs, partitions=partitions)

    again = lived(pipeline, inputs, partitions=partitions, max_poll_records=3)
    assert once.difference(again) is None
    for slices in (1, 3):
        with quick_folder() as folder:
            archives = archived(folder, inputs, {"orders": partitions})
            root = folder / "replay"
            session = session_of(pipeline, archives, root, partitions=partitions, slices=slices)
            drive(session)
            assert once.difference(replayed_outcome(result_of(session))) is None
