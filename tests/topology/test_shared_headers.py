"""Where headers are one list for all that share a record: only where a cache holds back what a processor may change."""

from streams import KTable, Processor, Record, StreamsBuilder
from streams.topology.shared_headers import LiveHeaders, live_headers
from streams.topology.subtopologies import sub_topologies


class Pass(Processor[str, str, str, str]):
    """Forwards what it gets."""

    def process(self, record: Record[str, str]) -> None:
        """Forward the record."""
        self.context.forward(record.key, record.value)


def live(build, *, has_cache: bool = True) -> LiveHeaders:
    """Return what is live in the one sub-topology that ``build`` makes of a stream of texts."""
    builder = StreamsBuilder()
    build(builder.stream("texts", key=str, value=str, name="texts"))
    topology = builder.build()
    (sub,) = sub_topologies(topology, {"texts": 1})
    return live_headers(topology, sub, has_cache=has_cache)


def counted(stream) -> KTable[str, int]:
    return stream.group_by_key(key=str, value=str).count("count", store="counts")


def test_nothing_is_live_without_a_cache():
    def build(texts):
        counted(texts)
        texts.process(Pass, name="pass")

    assert live(build, has_cache=False) == LiveHeaders()


def test_nothing_is_live_without_a_processor_beside_the_cache():
    assert live(counted) == LiveHeaders()
    assert live(lambda texts: counted(texts.map_values(str.upper))) == LiveHeaders()


def test_a_source_makes_live_headers_for_a_cache_and_a_processor():
    def build(texts):
        counted(texts)
        texts.process(Pass, name="pass")
        texts.filter(lambda key, value: True, name="filter")

    found = live(build)

    assert found.making == {"texts"}
    assert found.taking == {"count", "pass", "filter"}
    assert found.copying == {"filter"}


def test_a_record_behind_a_filter_is_another_one():
    def build(texts):
        counted(texts.filter(lambda key, value: True, name="filter"))
        texts.process(Pass, name="pass")

    assert live(build) == LiveHeaders()


def test_a_merge_hands_the_record_on():
    def build(texts):
        counted(texts.merge(texts.filter(lambda key, value: True, name="filter"), name="merge"))
        texts.process(Pass, name="pass")

    found = live(build)

    assert found.taking == {"merge", "filter", "pass", "count"}
    # What the filter forwards reaches the same cache, so it is live too.
    assert found.making == {"texts", "filter"}
    assert found.copying == {"filter"}
