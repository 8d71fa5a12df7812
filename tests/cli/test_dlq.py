"""``streams dlq``: dead letters are listed, shown, tested against a new version, and sent back."""

import json

import pytest

PARSE = """\
from streams import StreamsBuilder, Topic

lines = Topic("lines", key=str, value=str)
numbers = Topic("numbers", key=str, value=int)


def number_of(line: str) -> int:
    return int(line)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).map_values(number_of, name="parse").to(numbers)
"""
LENIENT = ("--set", "processing_handler=continue", "--set", "errors_dead_letter_queue_topic_name=dead")


@pytest.fixture
def letters(streams):
    """A state directory with two letters, from the lines "two" and "four"."""
    streams.write("parse.py", PARSE)
    streams.write("new.py", PARSE.replace("int(line)", "2 if line == 'two' else int(line)"))
    streams.write("lines.txt", "1\ntwo\n3\nfour\n")
    assert run(streams, "parse.py").status == 0

    def letters(*arguments):
        return streams("dlq", *arguments, "--state-dir", "run")

    return letters


def run(streams, script):
    given = ("--input", "lines=lines.txt", "--output", "numbers=-", "--state-dir", "run", "--application-id", "parse")
    return streams("run", script, *given, *LENIENT)


def test_letters_are_listed_by_reason_node_and_line(letters):
    done = letters("list", "dead")

    assert (done.status, done.err) == (0, "")
    assert "dead: letters: 2, of them re-driven: 0" in done.out
    assert "2  ValueError at parse: invalid literal for int() with base 10: 'two'" in done.out
    assert "parse.py:8, number_of: return int(line)" in done.out
    assert "first 0:0, last 0:1" in done.out


@pytest.mark.slow
def test_list_as_json_has_one_object_per_group(letters):
    (line,) = letters("list", "dead", "--json").out.splitlines()

    shown = json.loads(line)
    assert (shown["reason"], shown["node"], shown["letters"], shown["sources"]) == ("ValueError", "parse", 2, ["lines"])


@pytest.mark.slow
def test_filters_choose_letters(letters):
    counts = {
        ("--reason", "ValueError"): 2,
        ("--reason", "builtins.ValueError"): 2,
        ("--reason", "'four'"): 1,
        ("--reason", "KeyError", "--reason", "'two'"): 1,
        ("--node", "parse"): 2,
        ("--node", "other"): 0,
        ("--source", "other"): 0,
        ("--key", "two"): 0,
        ("--offsets", "0:1"): 1,
        ("--offsets", "0:0-7"): 2,
        ("--until", "2001-01-01"): 0,
        ("--since", "2001-01-01"): 2,
    }

    for chosen, count in counts.items():
        assert f"dead: letters: {count}," in letters("list", "dead", *chosen).out, chosen


@pytest.mark.slow
def test_letter_is_shown_with_key_value_and_stack(letters):
    shown = letters("show", "dead", "0:1", "--script", "parse.py").out

    assert "source:   lines-0 at offset 3" in shown
    assert "value:    'four'" in shown
    assert "Traceback (most recent call last)" in shown


@pytest.mark.slow
def test_plan_sends_nothing(letters):
    plan = letters("redrive", "dead").out

    assert "dead: letters to re-drive: 2\n  2 to lines-0\nnothing was sent" in plan
    assert letters("redrive", "dead").out == plan


def test_letters_that_pass_a_new_version_go_back_and_are_processed(streams, letters):
    plan = letters("redrive", "dead", "--test", "new.py").out
    assert "new.py: letters that pass: 1 of 2\n  1 fail: ValueError at parse" in plan
    assert "letters to re-drive: 1" in plan

    done = letters("redrive", "dead", "--test", "new.py", "--execute")
    assert "dead: letters re-driven: 1\n  1 to lines-0" in done.out

    assert run(streams, "new.py").values() == [1, 3, 2]
    assert "letters re-driven: 0" in letters("redrive", "dead", "--test", "new.py", "--execute").out


@pytest.mark.slow
def test_record_that_fails_again_and_again_is_left_in_the_end(streams, letters):
    for _ in range(2):
        assert "letters re-driven: 2" in letters("redrive", "dead", "--max-redrives", "2", "--execute").out
        run(streams, "parse.py")

    left = letters("redrive", "dead", "--max-redrives", "2", "--execute").out

    assert "letters re-driven: 0\n  2 left: was re-driven 2 times" in left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "dead", "0:9"), "there is no letter 0:9"),
        (("show", "dead", "0:0-1"), "one letter at a time, not 0:0-1; give 0:0"),
        (("list", "daed"), "there is no topic 'daed'"),
        (("list", "dead", "--offsets", "x"), "expected PARTITION:OFFSET"),
        (("list", "dead", "--since", "x"), "--since 'x'"),
    ],
    ids=str,
)
def test_mistakes_are_named(letters, arguments, message):
    done = letters(*arguments)

    assert done.status == 2
    assert message in done.err
