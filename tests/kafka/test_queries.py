"""Three instances answer queries under load while one is killed and a fourth joins: nothing wrong, nothing empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams import EmbeddedBroker
from tests.kafka.moves import show


@pytest.fixture(params=["served", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The addresses of a broker of this test alone."""
    if request.param == "kafka":
        yield request.getfixturevalue("own_kafka").bootstrap_servers
        return
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        yield server.bootstrap_servers


@pytest.mark.slow
def test_every_answer_is_right_while_an_instance_is_killed_and_another_joins(servers: str, tmp_path: Path) -> None:
    # A live instance that gets no processor for so long would refuse too.
    found = show(servers, tmp_path, 10_000, session_timeout_ms=20_000, transaction_timeout_ms=20_000)
    print(found)

    assert found["wrong"] == []
    assert found["empty"] == 0
    assert found["statuses"].keys() <= {"200", "503", "0"}
    # At least those before the kill, and after the moves.
    assert found["statuses"]["200"] > 10_000 // 3 + 10_000 // 10
    # Only while partitions move: from the kill until each of the four instances has its share and answers.
    assert found["refused_from_s"] >= 0
    assert found["refused_until_s"] <= found["settled_after_s"]
    assert found["after_settled"].keys() == {"200"}
