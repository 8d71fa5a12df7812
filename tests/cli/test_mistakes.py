"""Every mistake of a user ends with what, where and what to do: exit status 2, no traceback."""

import re
import signal
from collections.abc import Callable

import pytest

from tests.cli.conftest import Program

Refused = Callable[..., str]

FILES = ("--input", "numbers=numbers.jsonl", "--output", "halves=halves.jsonl")


@pytest.fixture(autouse=True)
def numbers(streams: Program) -> None:
    """An input without fault."""
    streams.write("numbers.jsonl", "1\n2\n")


def test_unknown_input_topic(refused: Refused) -> None:
    message = refused("run", "halves.py", "--input", "number=numbers.jsonl")

    assert "there is no topic 'number' (did you mean 'numbers'?); the topology's sources are numbers" in message


def test_output_topic_that_nobody_writes(refused: Refused) -> None:
    message = refused("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halfs=x.jsonl")

    assert "the topology writes no topic 'halfs' (did you mean 'halves'?); the topology's outputs are halves" in message


def test_input_and_output_confused(refused: Refused) -> None:
    assert "did you mean --output?" in refused("run", "halves.py", "--input", "halves=numbers.jsonl")
    assert "did you mean --input?" in refused(
        "run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "numbers=x.jsonl"
    )


def test_fsync_of_brokers_elsewhere(refused: Refused) -> None:
    message = refused("run", "halves.py", "--bootstrap-servers", "127.0.0.1:1", "--set", "fsync=commit")

    assert "fsync=commit and --bootstrap-servers: the setting is for the embedded broker" in message


def test_missing_input_file(refused: Refused) -> None:
    message = refused("run", "halves.py", "--input", "numbers=number.jsonl")

    assert "number.jsonl: there is no such file; did you mean 'numbers.jsonl'?" in message


def test_unknown_kind_of_file(refused: Refused, streams: Program) -> None:
    streams.write("numbers.xml", "")

    assert "numbers.xml: its suffix is not of a known kind of file; known are" in refused(
        "run", "halves.py", "--input", "numbers=numbers.xml"
    )
    assert ".csv files are read only; outputs are" in refused(
        "run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=x.csv"
    )


def test_input_that_is_the_output_too(refused: Refused) -> None:
    message = refused("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=./numbers.jsonl")

    assert "the file is already that of --input numbers; choose another" in message


def test_topic_given_twice_or_without_file(refused: Refused) -> None:
    assert "'numbers' is given twice" in refused(
        "run", "halves.py", "--input", "numbers=numbers.jsonl", "--input", "numbers=b.jsonl"
    )
    assert "--input numbers: expected --input TOPIC=PATH" in refused("run", "halves.py", "--input", "numbers")


@pytest.mark.parametrize(
    ("option", "value"), [("--master", "local[2]"), ("--conf", "spark.ui.port=1"), ("--archives", "env.tar#env")]
)
def test_option_of_spark_without_spark(refused: Refused, option: str, value: str) -> None:
    message = refused("replay", "halves.py", *FILES, "--executor", "local", option, value)

    assert f"{option} is Spark's: give --executor spark too" in message


BAD_ROWS = [
    pytest.param("halves.py", "numbers.jsonl", '1\n{"a\n4\n', r"numbers\.jsonl:2: .*expected `int`", id="broken JSON"),
    pytest.param("halves.py", "numbers.jsonl", '1\n"x"\n4\n', r"numbers\.jsonl:2: .*expected `int`", id="wrong type"),
    pytest.param(
        "halves.py",
        "numbers.records.jsonl",
        '{"value": 1}\n{"value": {"$hex": "00"}}\n{"value": 4}\n',
        r"numbers\.records\.jsonl:2: serde 'long' cannot read 1 bytes",
        id="unreadable bytes",
    ),
    pytest.param(
        "halves.py",
        "numbers.records.jsonl",
        '{"value": 1}\n{"value": 2, "timestamp": null}\n{"value": 4}\n',
        r"numbers\.records\.jsonl:2: .*timestamp.*epoch milliseconds",
        id="null timestamp of the record",
    ),
    pytest.param(
        "timed.py",
        "numbers.jsonl",
        '{"n": 1, "at": 5}\n{"n": 2, "at": null}\n{"n": 4, "at": 6}\n',
        r"numbers\.jsonl:2: topic 'numbers': the timestamp extractor failed",
        id="null timestamp in the value",
    ),
    pytest.param(
        "timed.py", "numbers.jsonl", '{"n": 1, "at": 5}\n{"n\n{"n": 4, "at": 6}\n', r"numbers\.jsonl:2: not JSON",
        id="cut JSON",
    ),
]  # fmt: skip

TIMED = """\
from typing import Any
from streams import StreamsBuilder, Topic

numbers = Topic("numbers", value=dict[str, Any], timestamp=lambda row: row["at"])
halves = Topic("halves", value=int)

def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda row: 100 // row["n"]).to(halves)
"""


@pytest.mark.case(3)
@pytest.mark.parametrize(("script", "name", "rows", "message"), BAD_ROWS)
def test_bad_row(refused: Refused, streams: Program, script: str, name: str, rows: str, message: str) -> None:
    streams.write("timed.py", TIMED)
    streams.write(name, rows)

    found = refused("run", script, "--input", f"numbers={name}", "--output", "halves=halves.jsonl")

    assert re.search(message, found), found
    assert "--set deserialization_handler=continue" in found
    assert not (streams.folder / "halves.jsonl").exists()


@pytest.mark.case(3)
@pytest.mark.parametrize(("script", "name", "rows", "message"), BAD_ROWS)
def test_bad_row_where_the_handler_says_continue(
    streams: Program, script: str, name: str, rows: str, message: str
) -> None:
    streams.write("timed.py", TIMED)
    streams.write(name, rows)

    result = streams(
        "run", script, "--input", f"numbers={name}", "--output", "halves=-", "--set", "deserialization_handler=continue"
    )

    assert (result.status, result.values()) == (0, [100, 25])
    assert re.search(message, result.err), result.err
    assert "1 record was dropped" in result.err


def test_a_flood_of_bad_rows_is_cut_short(streams: Program) -> None:
    streams.write("numbers.jsonl", '"x"\n' * 500 + "1\n")

    result = streams(
        "run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=-",
        "--set", "deserialization_handler=continue",
    )  # fmt: skip

    assert (result.status, result.values()) == (0, [100])
    assert "500 records were dropped" in result.err
    assert len(result.err.splitlines()) < 5


def test_script_that_is_missing_or_a_folder(refused: Refused) -> None:
    assert "halvs.py: there is no such script; did you mean 'halves.py'?" in refused("run", "halvs.py", *FILES)
    assert "is a directory" in refused("run", ".", *FILES)


def test_script_with_a_syntax_error(refused: Refused, streams: Program) -> None:
    streams.write("broken.py", "x = 1\ndef topology(builder:\n    pass\n")

    message = refused("run", "broken.py", *FILES)

    assert "broken.py:2: the script is not Python: '(' was never closed" in message
    assert "def topology(builder:" in message


@pytest.mark.case(4)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\nraise RuntimeError('no config')\n", r"broken\.py:2: the script failed while it was loaded: Runtime"),
        ("import nowhere_at_all\n", r"broken\.py:1: the script failed .*ModuleNotFoundError: .*'nowhere_at_all'"),
        ("import sys\nsys.exit(3)\n", r"broken\.py:2: the script failed .*it ended itself with status 3"),
        ("from streams import Topic\nt = Topic('a b', value=str)\n", r"broken\.py:2: .*topic name 'a b' has ' '"),
        ("def topology(builder):\n    builder.strem(1)\n", r"broken\.py:2: topology\(\) failed: AttributeError"),
        (
            "from streams import Topic\ndef topology(builder):\n"
            "    builder.stream(Topic('t', value=str)).mapValues(str.upper)\n",
            r"broken\.py:3: topology\(\) failed: AttributeError: .* 'mapValues'; did you mean 'map_values'\?",
        ),
        (
            "from .shop import topology\n",
            r"broken\.py:1: .*ImportError: .*; a script is loaded by itself and not as part",
        ),
        ("def topology():\n    pass\n", r"broken\.py:1\) takes \(\); give a function of \(builder\)"),
        ("topology = 5\n", r"broken\.py: 'topology' is of type int; a topology is a function of the builder"),
        ("def topolgy(builder):\n    pass\n", r"there is no function 'topology'; did you mean 'topolgy'\?"),
    ],
)
def test_script_that_does_not_load(refused: Refused, streams: Program, text: str, expected: str) -> None:
    streams.write("broken.py", text)

    for command in (("run", "broken.py", *FILES), ("describe", "broken.py")):
        message = refused(*command)
        assert re.search(expected, message), message


def test_topology_that_cannot_be_built(refused: Refused, streams: Program) -> None:
    streams.write(
        "broken.py",
        "from streams import Topic\nt = Topic('t', key=str, value=int)\n"
        "def topology(builder):\n"
        "    grouped = builder.stream(t).group_by_key()\n"
        "    grouped.count('twice')\n"
        "    grouped.count('twice')\n",
    )

    message = refused("run", "broken.py", "--input", "t=numbers.jsonl")

    assert re.search(r"broken\.py(:\d+)?: the topology cannot be built: .*twice", message), message


def test_unknown_setting_and_value_that_does_not_fit(refused: Refused) -> None:
    assert "unknown setting 'commit_interval': did you mean 'commit_interval_ms'?" in refused(
        "run", "halves.py", *FILES, "--set", "commit_interval=5"
    )
    assert "setting 'commit_interval_ms': expected a whole number of ms" in refused(
        "run", "halves.py", *FILES, "--set", "commit_interval_ms=soon"
    )
    assert "--set commit_interval_ms: expected --set NAME=VALUE" in refused(
        "run", "halves.py", *FILES, "--set", "commit_interval_ms"
    )


def test_inputs_that_are_not_co_partitioned(refused: Refused, streams: Program) -> None:
    streams.write(
        "joined.py",
        "from datetime import timedelta\n"
        "from streams import JoinWindows, Topic\n"
        "a = Topic('a', key=str, value=int, partitions=2)\n"
        "b = Topic('b', key=str, value=int, partitions=3)\n"
        "out = Topic('out', key=str, value=int)\n"
        "def topology(builder):\n"
        "    windows = JoinWindows.of(timedelta(seconds=1))\n"
        "    builder.stream(a).join(builder.stream(b), lambda x, y: x + y, windows).to(out)\n",
    )
    streams.write("b.jsonl", "1\n")

    message = refused("run", "joined.py", "--input", "a=numbers.jsonl", "--input", "b=b.jsonl")

    assert re.search(r"'?a'? .*2.*'?b'? .*3", message), message
    assert "co-partitioned" in message
    assert "repartition" in message


def test_state_directory_in_use_is_no_mistake_since_it_may_be_free_soon(streams: Program) -> None:
    holder = streams.start("run", "halves.py", "--state-dir", "state")
    assert holder.stderr is not None
    assert "runs on an embedded broker" in holder.stderr.readline()

    result = streams("run", "halves.py", *FILES, "--state-dir", "state")
    holder.send_signal(signal.SIGTERM)
    holder.communicate(timeout=300)

    assert (result.status, result.out) == (1, "")
    assert re.search(r"state.* in use", result.err), result.err
    assert "Traceback" not in result.err
    assert holder.returncode == 0


def test_state_directory_that_is_a_file(refused: Refused) -> None:
    for folder in ("halves.py", "halves.py/below"):
        message = refused("run", "halves.py", *FILES, "--state-dir", folder)
        assert f"--state-dir {folder}: cannot be created" in message
        assert "choose another" in message


def test_other_partitions_than_in_the_state_directory(refused: Refused, streams: Program) -> None:
    assert streams("run", "halves.py", *FILES, "--state-dir", "state", "--partitions", "2").status == 0

    message = refused("run", "halves.py", *FILES, "--state-dir", "state", "--partitions", "3")

    assert "has 2 partitions in the state directory, not 3" in message


def test_arguments_that_do_not_fit(refused: Refused) -> None:
    assert "'0' is not a number of partitions" in refused("run", "halves.py", *FILES, "--partitions", "0")
    assert "--output needs --input" in refused("run", "halves.py", "--output", "halves=-")
    assert "--final-flush needs --input" in refused("run", "halves.py", "--final-flush")
    assert "application_id" in refused("run", "halves.py", *FILES, "--application-id", "a b")
    assert "there is no command 'reply'; did you mean 'replay'? (streams --help)" in refused("reply", "halves.py")
    assert "no option --inptu; did you mean '--input'? (streams run --help)" in refused("run", "a.py", "--inptu=b=c")
    assert "no option --partions; did you mean '--partitions'? (streams topics create --help)" in refused(
        "topics", "create", "t", "--partions", "3"
    )
    assert "--set goes behind streams topics create (" in refused("topics", "--set=a=b", "create", "t")
    assert "--debug goes behind streams run (" in refused("--debug", "run", "a.py")
    assert "unexpected argument 'b.py'" in refused("run", "a.py", "b.py")
    assert "there is no 'creat'; did you mean 'create'?" in refused("topics", "creat")
    assert "a replay needs --input" in refused("replay", "halves.py")
    assert "the following arguments are required: command" in refused("--")


def test_code_that_fails_on_a_record(streams: Program) -> None:
    """Not a mistake of the command line: exit status 1, with the record and the line of code."""
    streams.write("numbers.jsonl", "1\n0\n4\n")

    result = streams("run", "halves.py", *FILES)

    assert result.status == 1
    assert "Traceback" not in result.err
    assert re.search(r"node 'KSTREAM-MAPVALUES-\d+' at numbers-0 offset 1: ZeroDivisionError", result.err), result.err
    assert re.search(r"in .*halves\.py:8, half: return 100 // number", result.err), result.err
    assert "--set processing_handler=continue" in result.err


def test_code_that_fails_on_a_record_where_the_handler_says_continue(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n0\n4\n")

    result = streams(
        "run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=-",
        "--set", "processing_handler=continue",
    )  # fmt: skip

    assert (result.status, result.values()) == (0, [100, 25])
    assert "1 record was dropped" in result.err


HANDLERS = """
from halves import half
from streams import HandlerResponse

def lenient(context, record, error):
    return HandlerResponse.resume() if record.value == 0 else "fail"
"""


def test_handler_of_a_module_beside_the_script_is_asked(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n0\n4\n")
    streams.write("mine.py", HANDLERS)
    chosen = ("run", "halves.py", "--input", "numbers=numbers.jsonl", "--output", "halves=-", "--set")

    result = streams(*chosen, "processing_handler=mine:lenient")

    assert (result.status, result.values()) == (0, [100, 25])
    assert "failed, ZeroDivisionError (numbers-0 at offset 1: ZeroDivisionError" in result.err

    for name, message in (("mine:lenent", "'mine' has no function 'lenent'"), ("theirs:f", "No module named 'theirs'")):
        result = streams(*chosen, f"processing_handler={name}")
        assert (result.status, message in result.err) == (2, True), result.err


def test_debug_shows_the_traceback(streams: Program) -> None:
    streams.write("numbers.jsonl", "1\n0\n4\n")

    result = streams("run", "halves.py", *FILES, "--debug")

    assert result.status == 1
    assert "Traceback" in result.err
    assert "ZeroDivisionError" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "halves.py", "--bootstrap-servers", ""),
        ("run", "halves.py", "--input=", "--output", "halves=x.jsonl"),
        ("broker", "--tls-cert", ""),
        ("broker", "--data", ""),
        ("groups", "rewind", "app", "--topic", "", "--to", "earliest"),
    ],
)
def test_option_with_an_empty_value_is_named(refused: Refused, arguments: tuple[str, ...]) -> None:
    """As from a variable of the shell that is not set: the program did something else instead."""
    assert re.search(
        r"argument (-[a-z]/)?--[a-z-]+: its value is empty; give one, or leave the option out", refused(*arguments)
    )
