"""The log of a service: lines with time, level and component, as text or JSON."""

import json
import logging
import re

import pytest

from streams.cli.commands.connect import _messages
from streams.cli.connectors import Secrets
from streams.cli.lines import fail, formed, say
from streams.cli.program import MESSAGES_OF_A_KIND, _form_of, _logging, _parsed, main
from streams.core.notices import Notices


def written(form: str | None, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with formed(form), _logging(is_debug=False):
        say("shop runs")
        logging.getLogger("streams.runtime.tried").warning("%d records", 3)
        fail("no broker")
    return capsys.readouterr().err.splitlines()


def test_lines_of_a_person_begin_with_the_name_of_the_program(capsys):
    assert written(None, capsys) == ["streams: shop runs", "streams: 3 records", "streams: no broker"]


def test_lines_of_a_service_have_time_level_and_component(capsys):
    said, logged, failed = written("text", capsys)

    assert said == "streams: shop runs"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z WARNING streams.runtime.tried: 3 records", logged)
    assert failed.endswith("Z ERROR streams.cli: no broker")


def test_all_lines_can_be_json(capsys):
    lines = [json.loads(line) for line in written("json", capsys)]

    assert [{name: text for name, text in line.items() if name != "time"} for line in lines] == [
        {"level": "INFO", "component": "streams.cli", "message": "shop runs"},
        {"level": "WARNING", "component": "streams.runtime.tried", "message": "3 records"},
        {"level": "ERROR", "component": "streams.cli", "message": "no broker"},
    ]


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        (["broker"], "text"),
        (["connect", "file.toml", "--log-format", "json"], "json"),
        (["run", "shop.py"], "text"),
        (["run", "shop.py", "--input", "a=b"], None),
        (["run", "shop.py", "--input", "a=b", "--log-format", "json"], "json"),
        (["topics", "list"], None),
    ],
)
def test_commands_that_are_services_write_lines_of_a_service(arguments, form):
    assert _form_of(_parsed(arguments)) == form


def test_the_level_is_that_of_the_option(capsys):
    with formed("text"), _logging(is_debug=False, level="error"):
        logging.getLogger("streams.tried").warning("a warning")
        logging.getLogger("streams.tried").error("an error", exc_info=ValueError("no traceback without --debug"))

    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(" ERROR streams.tried: an error")


@pytest.mark.parametrize(("chosen", "levels"), [([], "IWE"), (["warning"], "WE"), (["error"], "E")])
def test_connect_has_the_level_of_the_option_too(chosen, levels, capsys):
    options = _parsed(["connect", "file.toml", *(f"--log-level={level}" for level in chosen)])
    with formed("text"), _logging(is_debug=False, level=options.log_level or "warning"):
        with _messages(Secrets(), options.log_level):
            for level in (logging.INFO, logging.WARNING, logging.ERROR):
                logging.getLogger("streams.connect.tried").log(level, "written")

    assert [line.split()[1][0] for line in capsys.readouterr().err.splitlines()] == list(levels)


def test_each_cause_of_a_minute_is_told_however_many_there_are(capsys):
    notices = Notices()
    with formed("text"), _logging(is_debug=False):
        for number in range(2 * MESSAGES_OF_A_KIND):
            notices.warn(logging.getLogger("streams.tried"), number, 0, f"cause {number}: 100%s")

    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == [f"cause {number}: 100%s" for number in range(len(lines))]
    assert len(lines) == 2 * MESSAGES_OF_A_KIND


@pytest.mark.parametrize("arguments", [["--output", "counts=-"], ["--final-flush"], ["--set", "sasl_password=x"]])
def test_a_run_over_files_writes_only_json_if_told(arguments, tmp_path, capsys):
    (tmp_path / "script.py").write_text(
        "from streams import Topic\n"
        "def topology(builder):\n"
        "    first = builder.stream(Topic('lines', value=str))\n"
        "    first.merge(builder.stream(Topic('others', value=str))).to(Topic('counts', value=str))\n"
    )
    (tmp_path / "lines.txt").write_text("a\nb\n")
    files = [str(tmp_path / "script.py"), "--input", f"lines={tmp_path / 'lines.txt'}"]

    main(["run", *files, "--log-format", "json", *arguments])

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) >= 2
