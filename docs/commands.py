"""Writes the page of commands from the parser in the code: ``python docs/commands.py``."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from streams.cli.program import COMMANDS, parser

#: One word for one thing, over all commands; tests/cli/test_options.py holds it.
_RULES = [
    "## One word for one thing",
    "",
    "| option | in every command |",
    "|---|---|",
    "| `-i`, `--input TOPIC=PATH` | what is read |",
    "| `-o`, `--output TOPIC=FILE` | what is written |",
    "| `-b`, `--bootstrap-servers HOST:PORT` | the cluster |",
    "| `-p`, `--partitions N` | a number of partitions; `--partition N` is one of them |",
    "| `--format FORM` | the form of what is printed; `--json` is short for `--format json` |",
    "| `--limit N` | how much is shown |",
    "| `--max N` | how much is read; with a noun it bounds something else, as `--max-dropped` does |",
    "| `--explain` | say what would be done, and end |",
    "| `--execute` | do it: a command that deletes or overwrites prints its plan without it |",
    "| `--since TIME`, `--until TIME` | from a time on, and before a time |",
    "| `--set NAME=VALUE` | a setting |",
    "",
    "A `TIME` is ISO text such as `2026-01-31T12:00` (UTC unless it has a zone), or epoch milliseconds.",
]
PAGE = Path(__file__).parent / "reference" / "commands.md"


def _commands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Each command below a parser that has none below it: how it is called, its parser, its help."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {it.dest: it.help or "" for it in action._choices_actions}
            for name, command in action.choices.items():
                below = list(_commands(command))
                yield from below or [(command.prog, command, helps.get(name) or COMMANDS[name])]


def commands() -> dict[str, str]:
    """Return what each command does, by how it is called."""
    return {prog: text for prog, _, text in _commands(parser())}


def page() -> str:
    """Return the page: one row per command, in the order of ``streams --help``."""
    rows = [f"| `{prog}` | {text} |" for prog, text in commands().items()]
    head = [
        "# Commands",
        "",
        "`streams COMMAND --help` has the arguments and examples.",
        "Exit statuses are in [operating](../guide/operating.md).",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    return "\n".join([*head, *rows, "", *_RULES, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
