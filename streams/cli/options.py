"""Arguments that several commands have, and how they are parsed."""

import argparse
from collections.abc import Iterable
from typing import Any

from streams.cli.mistakes import UsageError


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the script, settings and ``--debug``."""
    parser.add_argument(
        "script",
        metavar="SCRIPT[:FUNCTION]",
        help="Python file that declares the topology, and the function in it (default: topology)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a setting, by Kafka Streams' name (may be repeated)",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks and more of what is going on")


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given by ``--set``.

    Raises:
        UsageError: one has no value, or is given twice.
    """
    return dict(pairs(options.settings, "--set", "NAME=VALUE"))


def pairs(texts: Iterable[str], option: str, form: str) -> list[tuple[str, str]]:
    """Return the two sides of each NAME=VALUE.

    Raises:
        UsageError: one has no ``=`` or an empty side, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value:
            raise UsageError(f"{option} {text}: expected {option} {form}")
        if name.strip() in found:
            raise UsageError(f"{option} {text}: {name.strip()!r} is given twice; give it once")
        found[name.strip()] = value
    return list(found.items())
