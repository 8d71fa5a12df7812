"""``streams reset``: an application begins again, from the start, an offset, a time or a snapshot."""

import shutil
import signal

import pytest

from streams import EmbeddedBroker
from streams.clients import Admin, Consumer
from streams.core.blocks.records import TopicPartition
from tests import programs

SUMS = """\
from streams import StreamsBuilder, Topic

words = Topic("words", key=str, value=int)
sums = Topic("sums", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().reduce(lambda one, other: one + other, "by-word").to_stream().to(sums)
"""
ROWS = "".join(
    f'{{"key": "{key}", "value": {number}, "timestamp": {number * 1000}}}\n' for number, key in enumerate("abaa")
)
THREE = "1970-01-01T00:00:03Z"


def run(streams):
    given = ("--input", "words=words.records.jsonl", "--output", "sums=-", "--state-dir", "run")
    done = streams("run", "app.py", *given)
    assert done.status == 0, done.err
    return done.values()


@pytest.fixture
def reset(streams):
    """Reset an application that has processed four records."""
    streams.write("app.py", SUMS)
    streams.write("words.records.jsonl", ROWS)
    assert run(streams) == [0, 1, 2, 5]

    def reset(*arguments):
        return streams("reset", "app", "--state-dir", "run", *arguments)

    return reset


def test_plan_changes_nothing(streams, reset):
    plan = reset("--output", "sums")

    assert (plan.status, plan.err) == (0, "")
    assert plan.out.splitlines() == [
        "application 'app': stopped",
        "  words-0: offset 4 -> 0",
        "  topic app-by-word-changelog: deleted",
        "  sums-0: records up to offset 4 deleted",
        "  state in run/state/app: deleted",
        "nothing was changed; --execute does it",
    ]
    assert reset("--output", "sums").out == plan.out


def test_application_computes_everything_again(streams, reset):
    assert "done; start it as usual" in reset("--output", "sums", "--execute").out

    assert run(streams) == [0, 1, 2, 5]


def test_several_tasks_compute_everything_again(streams):
    streams.write("sums.py", SUMS)
    rows = (f'{{"key": "{key}", "value": 1, "timestamp": {key}}}\n' for key in range(8))
    streams.write("words.records.jsonl", "".join(rows))
    run = ("run", "sums.py", "--input", "words=words.records.jsonl", "--output", "sums=-", "--partitions", "4")
    first = streams(*run, "--state-dir", "many")
    assert len(first.values()) == 8

    done = streams("reset", "sums", "--output", "sums", "--state-dir", "many", "--execute")

    assert "topic sums-sums.lanes: deleted" in done.out
    assert streams(*run, "--state-dir", "many").out == first.out


@pytest.mark.slow
def test_outputs_stay_unless_asked(streams, reset):
    reset("--execute")

    assert run(streams) == [0, 1, 2, 5] * 2


@pytest.mark.slow
def test_targets_are_those_of_kafkas_tool(streams, reset):
    streams.write("offsets.csv", "words,0,1\n")
    offsets = {
        ("--to", "latest"): 4,
        ("--to", THREE): 3,
        ("--to", "9999-01-01"): 4,
        ("--to-offset", "2"): 2,
        ("--to-offset", "99"): 4,
        ("--shift", "-1"): 3,
        ("--shift", "-9"): 0,
        ("--by-duration", "1h"): 4,
        ("--from-file", "offsets.csv"): 1,
    }

    for arguments, offset in offsets.items():
        assert f"words-0: offset 4 -> {offset}\n" in reset(*arguments).out, arguments


@pytest.mark.slow
def test_snapshot_puts_stores_back(streams, reset):
    given = ("--input", "words=words.records.jsonl", "--executor", "local", "--until", THREE, "--snapshot", "snapshot")
    assert streams("replay", "app.py", *given).status == 0

    done = reset("--to", THREE, "--from-snapshot", "snapshot", "--output", "sums", "--execute")

    assert "  words-0: offset 4 -> 3\n" in done.out
    assert "2 changelog records loaded\n" in done.out
    assert run(streams) == [5]

    other = reset("--to", "1970-01-01T00:00:02Z", "--from-snapshot", "snapshot")
    assert other.status == 2
    assert "ends at offset 3 of words-0, and the first record from 1970-01-01T00:00:02Z on has offset 2" in other.err


@pytest.mark.slow
def test_mistakes_are_named(streams, reset):
    streams.write("empty.csv", "")
    messages = {
        ("--output", "words"): "topic 'words' is an input of application 'app': its records would be deleted",
        ("--local-state", "nowhere"): "--local-state nowhere: there is no such folder",
        ("--from-file", "empty.csv"): "--from-file empty.csv: is empty",
        ("--topic", "wrods"): "there is no topic 'wrods'",
        ("--output", "wrods"): "there is no topic 'wrods'",
        ("--by-duration", "soon"): "--by-duration soon: expected a number with d, h, m or s",
        ("--from-file", "missing.csv"): "--from-file missing.csv: No such file",
        ("--from-snapshot", "snapshot"): "give the time at which it ends",
        ("--cut", "words=1"): "--cut is for --from-snapshot",
        ("--to", "soon"): "--to 'soon'",
    }

    for arguments, message in messages.items():
        done = reset(*arguments, "--execute")
        assert done.status == 2
        assert message in done.err
    assert "words-0: offset 4 -> 0" in reset().out


# --- killed between any two steps ---------------------------------------------------------

#: An application with a repartition topic, a changelog and state on disk.
REGROUPED = SUMS.replace(".group_by_key()", ".group_by(lambda key, number: key * 2)")
KILLED = {
    "snapshot": ("--to", THREE, "--from-snapshot", "snapshot", "--output", "sums"),
    "earliest": ("--output", "sums"),
    "shift": ("--shift", "-2"),
}


def left(folder):
    """What a reset may change: offsets with metadata, topics with the offsets of their logs, files of state."""
    with EmbeddedBroker(folder / "broker", maintenance_interval_ms=None) as broker, Admin(broker) as admin:
        counts = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
        places = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        with Consumer(broker) as consumer:
            logs = consumer.beginning_offsets(places), consumer.end_offsets(places)
        groups = sorted(group.group_id for group in admin.list_groups())
        internal = {place: log for place, log in logs[1].items() if place.topic.startswith("app-")}
        committed = {place: found for place, found in admin.committed_offsets("app").items() if place.topic == "words"}
        files = sorted(path.name for path in (folder / "state").rglob("*_*") if path.is_dir())
        return committed, logs[0], internal, groups, files


@pytest.mark.slow
@pytest.mark.seeds("kind", KILLED)
def test_reset_killed_before_any_step_and_run_again_ends_in_the_same_state(streams, kind):
    streams.write("app.py", REGROUPED)
    streams.write("words.records.jsonl", ROWS)
    results = run(streams)
    given = ("--input", "words=words.records.jsonl", "--executor", "local", "--until", THREE, "--snapshot", "snapshot")
    assert streams("replay", "app.py", *given).status == 0
    before = streams.folder / "before"
    shutil.move(streams.folder / "run", before)
    arguments = ["reset", "app", "--state-dir", "run", *KILLED[kind], "--execute"]

    def reset_killed(step):
        """Reset the application as it was, killed before a step; return the exit status."""
        shutil.rmtree(streams.folder / "run", ignore_errors=True)
        shutil.copytree(before, streams.folder / "run")
        return programs.run(["-m", "tests.dying", str(step), *arguments], cwd=streams.folder)

    assert streams.folder.joinpath("before", "state").exists()
    assert reset_killed(-1).returncode == 0
    expected = left(streams.folder / "run")
    deaths = 0
    while (done := reset_killed(deaths)).returncode != 0:
        assert done.returncode == -signal.SIGKILL, done.stderr
        again = streams(*arguments)
        assert again.status == 0, (deaths, again.err)
        assert left(streams.folder / "run") == expected, deaths
        deaths += 1
    assert deaths > 10
    assert run(streams) == {"earliest": results, "shift": [*results, 2, 5], "snapshot": [5]}[kind]
