"""``streams broker``: what it says of damaged records, and how these are repaired."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker
from streams.core.blocks.records import Block, TopicPartition
from tests import programs
from tests.cli.conftest import Program, Result


def damaged(folder: Path) -> Path:
    """Make a topic, and flip a bit of its fourth record."""
    with EmbeddedBroker(folder) as broker:
        broker.create_topic("words")
        for number in range(10):
            broker.append(TopicPartition("words", 0), Block([None], [b"%d" % number], [0]))
    path = folder / "logs" / "words-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 10 * 4 - 1] ^= 1
    path.write_bytes(data)
    return path


def test_a_repair_is_shown_and_performed_only_when_asked_for(streams: Program) -> None:
    path = damaged(streams.folder / "data")
    before = path.read_bytes()

    shown = streams("broker", "--data", "data", "--repair")

    assert shown.status == 1
    assert shown.out.startswith("words-0: offsets 3 to 3 are lost (69 bytes of 00000000000000000000.log: ")
    assert "nothing was changed" in shown.err
    assert path.read_bytes() == before

    performed = streams("broker", "--data", "data", "--repair", "--execute")

    assert (performed.status, performed.out) == (0, shown.out)
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == before
    with EmbeddedBroker(streams.folder / "data") as broker:
        blocks = broker.read(TopicPartition("words", 0), 0)
    assert [value for block in blocks for value in block.values] == [b"%d" % n for n in range(10) if n != 3]
    assert streams("broker", "--data", "data", "--repair") == Result(0, "", "streams: no log in data is damaged\n")


def test_a_repair_needs_the_folder(refused: Callable[..., str]) -> None:
    assert "--data" in refused("broker", "--repair")
    assert "no embedded broker has kept topics here" in refused("broker", "--repair", "--data", "nowhere")


def test_a_run_over_damaged_records_of_its_own_ends_with_an_error(streams: Program) -> None:
    """It would go on with wrong totals."""
    (streams.folder / "words.jsonl").write_text("".join(f'{{"word": "w{n % 7}"}}\n' for n in range(50)))
    arguments = ("run", "counts.py", "--input", "words=words.jsonl", "--output", "counts=out.jsonl")
    assert streams(*arguments, "--state-dir", "state").status == 0
    changelog = max(streams.folder.glob("state/broker/logs/*changelog*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(changelog.read_bytes())
    data[len(data) // 2] ^= 1
    changelog.write_bytes(data)

    result = streams(*arguments, "--state-dir", "state")

    assert result.status == 1
    assert f"the log of {changelog.parent.name} is damaged" in result.err
    assert "streams broker --data state/broker --repair" in result.err


@pytest.mark.killed
def test_a_topic_whose_deletion_was_killed_anywhere_is_there_or_gone_as_a_whole(streams: Program) -> None:
    """A killed deletion left records without their metadata, and the broker did not open any more."""
    deaths, found = 0, []
    while True:
        with EmbeddedBroker(streams.folder / "state" / "broker") as broker:
            if not deaths or not broker.topics():
                broker.create_topic("words", 2)
                broker.append(TopicPartition("words", 1), Block([None], [b"x"], [0]))
        arguments = ("topics", "delete", "words", "--state-dir", "state")
        done = programs.run(["-m", "tests.dying", str(deaths), *arguments], cwd=streams.folder)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        with EmbeddedBroker(streams.folder / "state" / "broker") as broker:
            found.append(
                sum(len(block) for block in broker.read(TopicPartition("words", 1), 0)) if broker.topics() else 0
            )
            assert list(broker.topics().values()) in ([], [2])
        deaths += 1

    assert found == sorted(found, reverse=True)
    assert {*found} == {0, 1}
    assert deaths > 5


def test_settings_of_groups_have_the_names_of_kafka(refused: Callable[..., str]) -> None:
    assert "did you mean 'group.min.session.timeout.ms'?" in refused("broker", "--set", "group.min.session.timeout=1")
    assert "expected a whole number of ms, at least 0" in refused("broker", "--set", "group.min.session.timeout.ms=-1")
    assert "expected at most group.max.session.timeout.ms, which is 1800000" in refused(
        "broker", "--set", "group.min.session.timeout.ms=1800001"
    )


def test_settings_are_those_of_the_broker_and_of_topics_too(refused: Callable[..., str]) -> None:
    assert "did you mean 'log.retention.ms'?" in refused("broker", "--set", "retention.ms=1")
    assert "expected a whole number of ms" in refused("broker", "--set", "log.retention.ms=day")
    assert "--no-auto-create is given too; give it once" in refused(
        "broker", "--no-auto-create", "--set", "auto.create.topics.enable=true"
    )
