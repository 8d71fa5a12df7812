"""Queries of ksqlDB's kinds write what is worked out for them, and the same in partitions, slices and on a broker."""

import pytest

from streams import Windowed
from tests.outside.ksql.own import CASES
from tests.outside.ways import WAYS, Piped

#: Three tasks have times of their own: a window of one task is not closed by a record of another.
ONE_TIME = {"emit_final", "suppress"}


def piped(name: str) -> Piped:
    query = CASES[name]
    records = [(topic, key, value, time, ()) for topic, key, value, time in query.records]
    return Piped(query.build, query.sources, query.sink, records)


def shown(key):
    return (key.key, key.window.start_ms, key.window.end_ms) if isinstance(key, Windowed) else key


@pytest.mark.parametrize("name", CASES)
def test_a_query_writes_what_is_worked_out_for_it(name):
    written = piped(name).written()

    assert [(shown(record.key), record.value, record.timestamp_ms) for record in written] == list(CASES[name].outputs)


@pytest.mark.case(12)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_query_writes_the_same_in_another_way(name, way):
    difference = WAYS[way](piped(name))

    assert (difference is not None) == (way == "3 partitions" and name in ONE_TIME), difference


def test_a_difference_is_seen():
    query, other = piped("sum_by_key"), piped("sum_by_key")
    query.records.append((*query.records[0][:1], "a", 1, 0, ()))

    assert [record.value for record in query.written()] != [record.value for record in other.written()]
