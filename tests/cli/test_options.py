"""One word for one thing, over the parsers of all commands; advice names options that the command has."""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.cli import parsing, program

SOURCES = Path(program.__file__).parents[1]
#: Words for which there is another one.
OTHER_WORDS = {"--check", "--dry-run", "--sample", "--count", "--from", "--to-time", "--servers", "--broker", "--quiet"}


def leaves(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of commands, and of their verbs."""
    verbs = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    for action in verbs:
        for parser in action.choices.values():
            yield from leaves(parser)
    if not verbs:
        yield of


PARSERS = {parser.prog: parser for parser in leaves(program.parser())}
OPTIONS = {prog: parser._option_string_actions for prog, parser in PARSERS.items()}
ALL_OPTIONS = {"--version", *(name for options in OPTIONS.values() for name in options)}


@pytest.mark.parametrize("prog", PARSERS)
def test_one_word_stands_for_one_thing(prog):
    options = OPTIONS[prog]
    assert not options.keys() & OTHER_WORDS
    for long, short in parsing.SHORT.items():
        if long in options and prog not in ("streams reset",):
            assert options.get(short) is options[long], f"{long} has no {short}"
    shorts = {name for name in options if re.fullmatch("-[a-z]", name)}
    assert shorts <= {"-h", *parsing.SHORT.values()}
    has_json = "--format" in options and "json" in options["--format"].choices
    assert ("--json" in options) == has_json
    if has_json:
        assert (options["--json"].dest, options["--json"].const) == ("format", "json")
    for name in options.keys() & {"--limit", "--max"}:
        assert options[name].metavar == "N"
        with pytest.raises(argparse.ArgumentTypeError):
            options[name].type("-1")
    for name in options.keys() & {"--since", "--until", "--at"}:
        assert options[name].metavar == "TIME"
    for name in options.keys() & {"--explain", "--execute"}:
        assert options[name].nargs == 0


def test_options_of_several_commands_have_a_group_in_the_help():
    users = {name: [prog for prog in OPTIONS if name in OPTIONS[prog]] for name in ALL_OPTIONS if name.startswith("--")}
    grouped = set(" ".join(parsing.GROUPS.values()).split())

    alone = {name for name, progs in users.items() if len(progs) > 3 and name.removeprefix("--") not in grouped}
    assert alone <= {"--execute", "--force", "--group", "--topic"}
    assert {f"--{name}" for name in grouped} - ALL_OPTIONS <= {"--log-level", "--log-format"}


def test_help_has_examples_first_and_each_option_once(capsys):
    with pytest.raises(SystemExit):
        program.main(["replay", "--help"])

    text = capsys.readouterr().out
    assert text.startswith("usage: streams replay [OPTIONS] SCRIPT[:FUNCTION]\n")
    titles = (
        "Examples:",
        "Arguments:",
        "Records in and out:",
        "Time and order:",
        "Where it runs:",
        "State:",
        "Settings:",
    )
    places = [text.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    assert "  -i, --input TOPIC=PATH\n" in text
    for option in OPTIONS["streams replay"]:
        if option.startswith("--"):
            assert len(re.findall(rf"^  (?:-\w, )?(?:--\S+, )*{option}\b(?!-)", text, re.M)) == 1, option


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module without its documentation; a part that is put in is ``X``."""
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            skipped.add(node.body[0].value)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.value


#: Another program, with its options up to the end of the line or of the quoted command.
FOREIGN = r"(?:kafka-[\w.-]+|pip install|pytest|mypy|^--editable)[^\n`;]*"
NAMED = r"streams ((?:topics |groups |dlq |snapshot )?[a-z]+)([^`\n;]*)"


def options_in(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][a-z-]*(?<!-)", text)


@pytest.mark.parametrize("folder", sorted(path.name for path in SOURCES.iterdir() if path.is_dir()))
def test_advice_names_options_that_the_command_has(folder):
    """Those behind ``streams NAME`` are of that command, others in the module of a command are its own."""
    wrong = []
    for path in sorted((SOURCES / folder).rglob("*.py")):
        source = path.read_text()
        if not options_in(source):
            continue
        own = {
            name
            for prog, options in OPTIONS.items()
            if f"{prog} ".startswith(f"streams {path.stem} ")
            for name in options
        }
        for text in texts(ast.parse(source)):
            rest = re.sub(FOREIGN, "", text)
            asked = [
                (OPTIONS.get(f"streams {command}", ALL_OPTIONS), part) for command, part in re.findall(NAMED, rest)
            ]
            asked.append((own if own and path.parent.name == "commands" else ALL_OPTIONS, re.sub(NAMED, "", rest)))
            wrong += [
                f"{path.name}: {option} in {text[:90]!r}"
                for options, part in asked
                for option in options_in(part)
                if option not in options
            ]
    assert wrong == []
