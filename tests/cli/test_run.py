"""``streams run`` over files: what a user types, and what is then in the outputs."""

import json
import re
import signal
from typing import Any

import pytest

from tests.cli.conftest import Program

TWO = """\
from streams import StreamsBuilder, Topic

a, b, longer = (Topic(name, key=str, value=int) for name in ("a", "b", "longer"))


def topology(builder: StreamsBuilder) -> None:
    builder.stream(a).to(b)
    builder.stream(a).map_values(lambda number: number + 1).to(longer)
"""


def test_a_bounded_run_ends_with_its_input(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n4\n5\n")

    result = streams("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=-")

    assert (result.status, result.err) == (0, "")
    assert result.values() == [100, 25, 20]


def test_nothing_but_data_goes_to_standard_output(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n")

    result = streams("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=halves.jsonl")

    assert (result.status, result.out) == (0, "")
    assert (streams.folder / "halves.jsonl").read_text() == "100\n"


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 4, 7])
def test_rows_are_spread_over_all_partitions(streams: Program, partitions: int) -> None:
    rows = ["word", *(f"w{i % 50}" for i in range(1000))]
    streams.write("words.csv", "\n".join(rows))

    result = streams(
        "run", "counts.py", "--input", "words=words.csv", "--output", "counts=counts.records.jsonl",
        "--partitions", str(partitions),
    )  # fmt: skip

    assert (result.status, result.err) == (0, "")
    found = streams.read("counts.records.jsonl")
    assert {record["key"]: record["value"] for record in found} == {f"w{i}": 20 for i in range(50)}
    assert [record["partition"] for record in found] == sorted(record["partition"] for record in found)
    assert {record["partition"] for record in found} == set(range(partitions))


def test_a_run_ends_with_a_line_of_counts(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n0\n5\n")
    options = ("run", "halves.py", "--input", "numbers=numbers.jsonl", "--set", "processing_handler=continue")

    written, unwritten = streams(*options, "--output", "halves=-"), streams(*options)

    assert re.fullmatch(r"streams: 3 records in, 2 out, 1 dropped, \d+\.\d s\n", written.end)
    assert re.fullmatch(r"streams: 3 records in, 1 dropped, \d+\.\d s\n", unwritten.end)


WINDOWS = """\
from datetime import timedelta
from streams import StreamsBuilder, TimeWindows, Topic, time_windowed

rows = Topic("rows", key=str, value=dict, timestamp=lambda row: row["at"], key_from=lambda row: row["who"])
hours = Topic("hours", key=time_windowed(str, timedelta(hours=1)), value=int)


def topology(builder: StreamsBuilder) -> None:
    hourly = builder.stream(rows).group_by_key().windowed_by(TimeWindows.of(timedelta(hours=1)))
    hourly.count("hourly").to_stream().to(hours)
"""


def test_a_file_of_json_lines_has_whole_records_of_a_topic_with_keys(streams: Program) -> None:
    streams.write("windows.py", WINDOWS)
    streams.write("rows.jsonl", '{"who":"ann","at":0}\n')
    options = ("run", "windows.py", "--input", "rows=rows.jsonl", "--output")

    assert streams(*options, "hours=hours.jsonl").status == 0
    key = {"key": "ann", "start": 0, "end": 3_600_000}
    assert streams.read("hours.jsonl") == [{"key": key, "value": 1, "timestamp": 0, "headers": [], "partition": 0}]
    assert streams(*options, "hours=hours.jsonl", "--format", "value").status == 0
    assert (streams.folder / "hours.jsonl").read_text() == "1\n"
    table = streams(*options, "hours=-", "--format", "table")
    assert table.out == "ann  [1970-01-01T00:00:00Z, 1970-01-01T01:00:00Z)  1\n"


@pytest.mark.parametrize(
    ("output", "form", "message"),
    [
        ("halves=halves.parquet", "value", "halves.parquet: only files that end with .jsonl, and standard output,"),
        ("halves=halves.jsonl", "table", "halves.jsonl: only standard output can have the format 'table'"),
        (None, "json", "--format json: needs an --output"),
    ],
)
def test_a_format_that_an_output_cannot_have_is_refused(
    streams: Program, refused: Any, output: str | None, form: str, message: str
) -> None:
    streams.write("numbers.jsonl", "1\n")
    outputs = ("--output", output) if output else ()

    assert message in refused("run", "halves.py", "--input", "numbers=numbers.jsonl", *outputs, "--format", form)


@pytest.mark.parametrize("before", ["", '{"who":"ann","at":0}\n'])
def test_whole_records_in_a_file_of_values_are_refused_by_a_topic_of_any_json(streams: Program, before: str) -> None:
    streams.write("windows.py", WINDOWS)
    streams.write(
        "rows.jsonl", before + '{"key":"ann","value":{"who":"ann","at":0},"timestamp":0,"headers":[],"partition":0}\n'
    )

    result = streams("run", "windows.py", "--input", "rows=rows.jsonl")

    assert result.status == 2
    assert f"rows.jsonl:{2 if before else 1}: the row does not match" in result.err
    assert "rename the file so that its name ends with .records.jsonl" in result.err


@pytest.mark.parametrize("command", [("run",), ("replay", "--executor", "local")], ids=["run", "replay"])
def test_two_outputs_go_to_standard_output_with_the_names_of_their_topics(
    streams: Program, command: tuple[str, ...]
) -> None:
    """``run`` refused what ``replay`` took, and nothing told the lines of two topics apart."""
    streams.write("two.py", TWO)
    streams.write("a.records.jsonl", '{"key": "k", "value": 1, "timestamp": 5}\n')
    arguments = (*command, "two.py", "--input", "a=a.records.jsonl", "--output", "b=-", "--output", "longer=-")

    assert streams.on_terminal(*arguments).out == "b       k  1\nlonger  k  2\n"
    records = [json.loads(line) for line in streams(*arguments).out.splitlines()]
    assert [(record["topic"], record["value"]) for record in records] == [("b", 1), ("longer", 2)]
    assert streams(*arguments[:-4], "--output", "b=-").out.startswith('{"key":"k"')


@pytest.mark.parametrize("command", [("run",), ("replay", "--executor", "local")], ids=["run", "replay"])
@pytest.mark.parametrize("other", ["a.records.jsonl", "./b.jsonl"])
def test_a_file_is_of_one_topic(streams: Program, command: tuple[str, ...], other: str) -> None:
    streams.write("two.py", TWO)
    line = '{"key": "k", "value": 1, "timestamp": 5}\n'
    streams.write("a.records.jsonl", line)
    outputs = ("--output", "b=b.jsonl", "--output", f"longer={other}")

    refused = streams(*command, "two.py", "--input", "a=a.records.jsonl", *outputs)

    assert refused.status == 2
    assert f"longer={other}: the file is already that of --" in refused.err
    assert (streams.folder / "a.records.jsonl").read_text() == line


def test_outputs_are_overwritten(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n")
    streams.write("halves.jsonl", "old\n")

    streams("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=halves.jsonl")

    assert (streams.folder / "halves.jsonl").read_text() == "100\n"


def test_another_function_and_a_built_topology_can_be_named(streams: Program) -> None:
    streams.write(
        "two.py",
        "from streams import Topic, Topology\n"
        "numbers = Topic('numbers', value=int)\nhalves = Topic('halves', value=int)\n"
        "def same(builder):\n    builder.stream(numbers).to(halves)\n"
        "built = Topology().add_source('in', numbers).add_sink('out', halves, 'in')\n",
    )
    streams.write("numbers.jsonl", "7\n")
    files = ("--input", "numbers=numbers.jsonl", "--output", "halves=-")

    assert streams("run", "two.py:same", *files).values() == [7]
    assert streams("run", "two.py:built", *files).values() == [7]


def test_topics_that_were_declared_by_name_only_are_known_by_their_serdes(streams: Program) -> None:
    streams.write(
        "plain.py",
        "from streams import Topology\n"
        "topology = (Topology().add_source('in', 'numbers', key=str, value=int)"
        ".add_sink('out', 'copies', 'in', key=str, value=int))\n",
    )
    streams.write("numbers.records.jsonl", '{"key": "a", "value": 7, "timestamp": 5}\n')

    result = streams("run", "plain.py", "--input", "numbers=numbers.records.jsonl", "--output", "copies=-")

    assert json.loads(result.out) == {"key": "a", "value": 7, "timestamp": 5, "headers": [], "partition": 0}


def test_a_run_with_a_state_directory_goes_on_where_it_was(streams: Program) -> None:
    files = ("--input", "words=words.csv", "--output", "counts=counts.records.jsonl", "--state-dir", "state")
    streams.write("words.csv", "word\na\nb\na\n")
    assert streams("run", "counts.py", *files).status == 0
    streams.write("words.csv", "word\na\nb\na\na\n")

    result = streams("run", "counts.py", *files)

    assert result.status == 0, result
    assert [(record["key"], record["value"]) for record in streams.read("counts.records.jsonl")] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("a", 3),
    ]


DAYS = ("--output", "counts=counts.records.jsonl", "--state-dir", "state")


def _counted(streams: Program) -> list[tuple[str, int]]:
    return [(record["key"], record["value"]) for record in streams.read("counts.records.jsonl")]


def test_another_file_follows_what_was_read_as_a_whole(streams: Program) -> None:
    streams.write("monday.csv", "word\na\nb\na\n")
    streams.write("tuesday.csv", "word\nb\n")
    assert streams("run", "counts.py", "--input", "words=monday.csv", *DAYS, "--partitions", "3").status == 0

    result = streams("run", "counts.py", "--input", "words=tuesday.csv", *DAYS, "--partitions", "3")

    assert (result.status, result.err) == (0, "streams: tuesday.csv: follows on 3 rows of topic 'words'\n")
    assert sorted(_counted(streams)) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.case
@pytest.mark.parametrize("path", ["days", "days/*.csv"])
def test_a_folder_and_a_pattern_are_read_as_one_file_by_name(streams: Program, path: str) -> None:
    (streams.folder / "days").mkdir()
    for name, words in {"2": "b\na\n", "1": "a\nb\na\n", "3": "", "4": "c\n"}.items():
        streams.write(f"days/{name}.csv", f"word\n{words}")
    streams.write("days/_SUCCESS", "")
    streams.write("all.csv", "word\na\nb\na\nb\na\nc\n")
    for given, target in ((path, "found"), ("all.csv", "expected")):
        result = streams(
            "run", "counts.py", "--input", f"words={given}", "--output", f"counts={target}.records.jsonl",
            "--partitions", "3",
        )  # fmt: skip
        assert (result.status, result.err) == (0, "")

    found, expected = (streams.read(f"{name}.records.jsonl") for name in ("found", "expected"))
    plain = [[(row["key"], row["value"], row["partition"]) for row in each] for each in (found, expected)]
    assert plain[0] == plain[1]
    assert len(found) == 6


def test_a_folder_that_has_grown_continues_with_its_new_files(streams: Program) -> None:
    (streams.folder / "days").mkdir()
    streams.write("days/1.csv", "word\na\nb\n")
    streams.write("days/2.csv", "word\na\n")
    files = ("--input", "words=days", *DAYS, "--partitions", "2")
    assert streams("run", "counts.py", *files).status == 0
    streams.write("days/2.csv", "word\na\nb\n")
    streams.write("days/3.csv", "word\na\n")
    streams.write("days/4.csv", "word\na\n")

    result = streams("run", "counts.py", *files)

    assert (result.status, result.err) == (0, "streams: days/3.csv: follows on 4 rows of topic 'words'\n")
    assert sorted(_counted(streams)) == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2)]
    streams.write("days/1.csv", "word\nx\nb\n")
    result = streams("run", "counts.py", *files)
    assert result.status == 2
    assert "days/1.csv: its first 2 rows are not the rows that were read from it before" in result.err


@pytest.mark.slow
def test_a_run_continues_the_replay_of_a_folder_with_its_new_files(streams: Program) -> None:
    (streams.folder / "days").mkdir()
    row = '{{"key": "{}", "value": {{"word": "{}"}}, "timestamp": {}}}\n'
    streams.write("days/1.records.jsonl", row.format("k", "a", 0) + row.format("k", "b", 1))
    streams.write("days/2.records.jsonl", row.format("k", "a", 2))
    replayed = streams(
        "replay", "counts.py", "--input", "words=days", "--executor", "local", "--snapshot", "snapshot",
        "--partitions", "2",
    )  # fmt: skip
    assert replayed.status == 0, replayed.err
    streams.write("days/3.records.jsonl", row.format("k", "a", 3))
    files = ("--input", "words=days", *DAYS, "--from-snapshot", "snapshot")

    result = streams("run", "counts.py", *files)

    assert result.status == 0, result.err
    assert "days/3.records.jsonl: follows on 3 rows" in result.err
    assert _counted(streams) == [("k", 4)]
    streams.write("days/2.records.jsonl", row.format("k", "a", 2) * 2)
    result = streams("run", "counts.py", *files)
    assert result.status == 2
    assert "days/2.records.jsonl has grown since it was replayed after other files" in result.err


@pytest.mark.case(3)
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("none.csv", "none.csv: there is no such file"),
        ("sub/none.csv", "sub/none.csv: there is no such file; its folder 'sub' does not exist either"),
        ("none*.csv", "none*.csv: no file matches this pattern"),
        ("empty", "empty: this folder has no files"),
        ("delta", "is a table of Delta Lake"),
        ("odd", "odd/rows.xls: its suffix is not of a known kind of file"),
    ],
)
def test_what_cannot_be_read_is_told_as_by_a_replay(streams: Program, path: str, text: str) -> None:
    for folder in ("empty", "delta/_delta_log", "odd"):
        (streams.folder / folder).mkdir(parents=True)
    streams.write("delta/part.csv", "word\na\n")
    streams.write("odd/rows.xls", "a")

    told = [
        streams(verb, "counts.py", "--input", f"words={path}", *options)
        for verb, *options in (("run",), ("replay", "--executor", "local"))
    ]

    assert [result.status for result in told] == [2, 2]
    assert told[0].err == told[1].err
    assert text in told[0].err


def test_history_that_only_a_replay_reads_is_refused(streams: Program) -> None:
    (streams.folder / "archive").mkdir()
    streams.write("archive/MANIFEST.json", "{}")

    for path, what in [("archive", "is an archive, a snapshot or a replay"), ("s3://b/x", "is no local file")]:
        result = streams("run", "counts.py", "--input", f"words={path}")
        assert result.status == 2
        assert f"--input words={path}: {what}, and a run over files reads files of this machine" in result.err


def test_a_file_that_was_changed_in_what_was_read_is_refused(streams: Program) -> None:
    streams.write("words.csv", "word\na\nb\n")
    assert streams("run", "counts.py", "--input", "words=words.csv", *DAYS).status == 0
    before = _counted(streams)
    streams.write("words.csv", "word\nx\nb\n")

    result = streams("run", "counts.py", "--input", "words=words.csv", *DAYS)

    assert result.status == 2
    assert "words.csv: its first 2 rows are not the rows that were read from it before" in result.err
    assert "--next words=words.csv" in result.err
    assert _counted(streams) == before


def test_next_says_that_a_file_follows_whatever_its_name_and_contents(streams: Program) -> None:
    streams.write("words.csv", "word\na\n")
    assert streams("run", "counts.py", "--input", "words=words.csv", *DAYS).status == 0

    assert streams("run", "counts.py", "--next", "words=words.csv", *DAYS).status == 0

    assert _counted(streams) == [("a", 1), ("a", 2)]


def test_next_needs_a_state_directory_and_one_file_a_topic(streams: Program) -> None:
    streams.write("words.csv", "word\na\n")

    alone = streams("run", "counts.py", "--next", "words=words.csv")
    both = streams("run", "counts.py", "--next", "words=words.csv", "--input", "words=words.csv", *DAYS)

    assert (alone.status, both.status) == (2, 2)
    assert "--next needs --state-dir" in alone.err
    assert "has an --input and a --next" in both.err


def test_a_run_over_files_leaves_no_temporary_folder(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n")
    scratch = streams.folder / "tmp"
    scratch.mkdir()
    files = ("--input", "numbers=numbers.jsonl", "--output", "halves=-")

    result = streams("run", "halves.py", *files, TMPDIR=str(scratch))

    assert result.status == 0
    assert list(scratch.iterdir()) == []


ROUND = """\
from streams import StreamsBuilder, Topic

numbers = Topic("numbers", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda number: number + 1).to(numbers)
"""


@pytest.mark.case
@pytest.mark.parametrize("verb", ["run", "replay"])
def test_records_that_go_round_for_ever_end_a_run_over_files(streams: Program, verb: str) -> None:
    streams.write("round.py", ROUND)
    streams.write("numbers.records.jsonl", '{"key": "a", "value": 1, "timestamp": 0}\n')
    local = ("--executor", "local") if verb == "replay" else ()

    result = streams(
        verb, "round.py", "--input", "numbers=numbers.records.jsonl", "--output", "numbers=out.records.jsonl",
        "--set", "max_cycle_rounds=20", *local,
    )  # fmt: skip

    assert result.status == 2
    assert "the topology reads what it writes to 'numbers', and does not end" in result.err
    assert "set max_cycle_rounds" in result.err


def test_an_input_that_is_not_given_stays_empty_and_is_said(streams: Program) -> None:
    streams.write(
        "merge.py",
        "from streams import Topic\n"
        "a, b, out = (Topic(name, value=int) for name in ('a', 'b', 'out'))\n"
        "def topology(builder):\n    builder.stream(a).merge(builder.stream(b)).to(out)\n",
    )
    streams.write("a.jsonl", "1\n")

    result = streams("run", "merge.py", "--input", "a=a.jsonl", "--output", "out=-")

    assert (result.status, result.values()) == (0, [1])
    assert "topic 'b' has no --input: it gets no records" in result.err


def test_a_topic_that_the_topology_writes_needs_no_input(streams: Program) -> None:
    streams.write(
        "through.py",
        "from streams import Topic\n"
        "a, b, out = (Topic(name, key=str, value=int, key_from=str) for name in ('a', 'b', 'out'))\n"
        "def topology(builder):\n    builder.stream(a).to(b)\n    builder.stream(b).to(out)\n",
    )
    streams.write("a.jsonl", "1\n2\n")

    result = streams("run", "through.py", "--input", "a=a.jsonl", "--output", "out=-", "--partitions", "2")

    assert (result.status, sorted(result.values())) == (0, [1, 2])
    assert result.err == ""


@pytest.mark.case
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_without_inputs_it_runs_until_a_signal_and_closes_cleanly(streams: Program, number: int) -> None:
    process = streams.start("run", "counts.py", "--state-dir", "state")
    assert process.stderr is not None
    assert "counts runs on an embedded broker" in process.stderr.readline()

    process.send_signal(number)
    out, err = process.communicate(timeout=300)

    assert (process.returncode, out, err) == (0, "", "")


def test_the_reader_of_the_output_may_go_away(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n" * 100_000)
    process = streams.start("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=-")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()
    err = process.stderr.read()

    assert (process.wait(timeout=300), err) == (141, "")


def test_version_and_help(streams: Program) -> None:
    assert streams("--version").out.startswith("streams ")
    help_text = streams("run", "--help").out
    for option in ("--input", "--output", "--partitions", "--state-dir", "--final-flush", "--set", ".parquet"):
        assert option in help_text


@pytest.mark.parametrize("form", ["text", "mermaid", "json", "svg", "program"])
def test_describe_shows_sub_topologies_internal_topics_and_stores(streams: Program, form: str) -> None:
    streams.write(
        "twice.py",
        "from streams import Topic\n"
        "lines, out = Topic('lines', value=str), Topic('out', key=str, value=int)\n"
        "def topology(builder):\n"
        "    (builder.stream(lines).group_by(lambda _, word: word).count('totals').to_stream().to(out))\n",
    )

    result = streams("describe", "twice.py", "--format", form)

    assert (result.status, result.err) == (0, "")
    # A program has nodes, not topics.
    for name in ("totals",) if form == "program" else ("lines", "totals-repartition", "totals", "out"):
        assert name in result.out
    if form == "text":
        assert "In step: totals-repartition\n" in result.out
    if form == "json":
        described: dict[str, Any] = json.loads(result.out)
        assert described["in_step"] == ["totals-repartition"]
        assert [sub["id"] for sub in described["subtopologies"]] == [0, 1]
    elif form == "svg":
        import xml.dom.minidom

        assert xml.dom.minidom.parseString(result.out).documentElement.tagName == "svg"
    else:
        assert "ub-topology" in result.out


SLOW = """\
import os
import signal
import sys
from streams import StreamsBuilder, Topic

numbers = Topic("numbers", value=int)
parities = Topic("parities", key=str, value=int)


signals, arrived = os.pipe()
os.set_blocking(arrived, False)
signal.set_wakeup_fd(arrived)


def note(number: int) -> None:
    if number == 20_000 and not os.path.exists("parities.stopped"):
        open("parities.stopped", "w").close()
        print("half way", file=sys.stderr, flush=True)
        # Not further before the signal has come.
        os.read(signals, 1)


def topology(builder: StreamsBuilder) -> None:
    (
        builder.stream(numbers)
        .peek(lambda _, number: note(number))
        .group_by(lambda _, number: "odd" if number % 2 else "even")
        .count("parities-count")
        .to_stream()
        .to(parities)
    )
"""


@pytest.mark.slow
def test_an_interrupted_run_is_closed_in_order_and_goes_on_with_nothing_doubled(streams: Program) -> None:
    streams.write("slow.py", SLOW)
    streams.write("numbers.jsonl", "\n".join(map(str, range(150_000))))
    command = (
        "run", "slow.py", "--input", "numbers=numbers.jsonl", "--output", "parities=parities.records.jsonl",
        "--state-dir", "state",
    )  # fmt: skip
    process = streams.start(*command)
    assert process.stderr is not None
    assert process.stderr.readline() == "half way\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "streams: interrupted\n")
    assert not (streams.folder / "parities.records.jsonl").exists()

    result = streams(*command)

    assert (result.status, result.err) == (0, "")
    found = streams.read("parities.records.jsonl")
    for key in ("odd", "even"):
        assert [record["value"] for record in found if record["key"] == key] == list(range(1, 75_001))


def test_results_that_are_not_kept_are_named(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n")
    given = ("run", "halves.py", "--input", "numbers=numbers.jsonl")

    lost, kept = streams(*given), streams(*given, "--state-dir", "state")

    assert (lost.status, lost.out) == (0, "")
    assert lost.err == (
        "streams: results in 'halves' are not kept; give --output halves=FILE (- is standard output), or --state-dir "
        "DIR\n"
    )
    assert (kept.status, kept.out, kept.err) == (0, "", "")
