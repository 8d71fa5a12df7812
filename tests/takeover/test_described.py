"""The text of ``Topology.describe()`` in Java, and how two topologies differ."""

from datetime import timedelta

import pytest

from streams import InputError, StreamsBuilder, Topic
from streams.comparison import Level
from streams.dsl import build_topology
from streams.takeover import compare, parsed
from streams.topology import describe

orders = Topic("orders", key=str, value=str)
customers = Topic("customers", key=str, value=str)

#: What Kafka Streams 4.4.0 prints for ``described``, between lines of a log.
JAVA = """\
[main] INFO starting
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> by-value
    Processor: by-value (stores: [])
      --> by-value-repartition-filter
      <-- KSTREAM-SOURCE-0000000000
    Processor: by-value-repartition-filter (stores: [])
      --> by-value-repartition-sink
      <-- by-value
    Sink: by-value-repartition-sink (topic: by-value-repartition)
      <-- by-value-repartition-filter

  Sub-topology: 1
    Source: by-value-repartition-source (topics: [by-value-repartition])
      --> sums
    Processor: sums (stores: [sums])
      --> KTABLE-TOSTREAM-0000000006
      <-- by-value-repartition-source
    Processor: KTABLE-TOSTREAM-0000000006 (stores: [])
      --> KSTREAM-SINK-0000000007
      <-- sums
    Sink: KSTREAM-SINK-0000000007 (topic: totals)
      <-- KTABLE-TOSTREAM-0000000006

[main] INFO running
"""


def counted(builder: StreamsBuilder, store: str = "sums", target: str = "totals") -> None:
    grouped = builder.stream(orders).group_by(lambda _, value: value, name="by-value")
    grouped.count(store).to_stream().to(Topic(target, key=str, value=int))


def of(topology):
    return describe(build_topology(topology))


def found(java, here):
    return [(item.level, item.subject) for item in compare(java, here)]


def test_a_topology_with_the_names_of_java_is_the_same():
    java = parsed(JAVA, "java.txt")

    assert [sub.id for sub in java.sub_topologies] == [0, 1]
    assert [item for item in compare(java, of(counted)) if item.level is not Level.NOTE] == []


def test_what_is_parsed_is_what_was_described():
    def all_kinds(builder: StreamsBuilder) -> None:
        builder.global_table(customers, name="names")
        builder.stream(orders).to(lambda key, value, context: "anywhere", key=str, value=str)

    here = of(all_kinds)

    java = parsed(here.to_text(), "here")

    assert java.global_stores == here.global_stores
    assert compare(java, here) == []


def test_a_store_of_another_name_starts_empty_and_the_other_is_left():
    java = parsed(JAVA, "java.txt")

    assert found(java, of(lambda builder: counted(builder, "others")))[:2] == [
        (Level.BUT, "store sums"),
        (Level.CANNOT, "store others"),
    ]


def test_another_output_and_another_operator_must_be_checked():
    def filtered(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).filter(lambda key, value: True)
        grouped = grouped.group_by(lambda _, value: value, name="by-value")
        grouped.count("sums").to_stream().to(Topic("sum", key=str, value=int))

    levels = found(parsed(JAVA, "java.txt"), of(filtered))

    assert (Level.BUT, "sub-topology 0") in levels
    assert levels.count((Level.BUT, "sub-topology 1")) == 2
    assert not any(level is Level.CANNOT for level, _ in levels)


def test_another_input_cannot_be():
    def others(builder: StreamsBuilder) -> None:
        builder.stream(customers).group_by_key().count("sums").to_stream().to(Topic("totals", key=str, value=int))

    levels = found(parsed(JAVA, "java.txt"), of(others))

    assert (Level.CANNOT, "sub-topology 0") in levels
    assert (Level.CANNOT, "sub-topology 1") in levels


def test_settings_of_operators_of_this_library_are_read_over():
    def limited(builder: StreamsBuilder) -> None:
        builder.stream(orders).deduplicate(within=timedelta(minutes=1)).to(customers)

    here = of(limited)

    assert "within: 60000 ms" in here.to_text()
    assert compare(parsed(here.to_text(), "here"), here) == []


@pytest.mark.parametrize("text", ["", "nothing\n", "Sub-topology: 0\n   Sources are: none\n"])
def test_text_that_is_no_description_is_an_error_with_its_place(text):
    with pytest.raises(InputError, match=r"^java\.txt.*Topology\.describe"):
        parsed(text, "java.txt")
