"""Writes the page of commands from the parser in the code: ``python docs/commands.py``."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from streams.cli.program import COMMANDS, parser

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
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
