"""Arguments shared by several commands, and their parsing."""

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from streams.cli.lines import FORMS, say
from streams.cli.mistakes import UsageError
from streams.cli.parsing import SHORT

if TYPE_CHECKING:
    from streams.core.topic import Topic
    from streams.files import FileOutput
    from streams.replay import Plan

#: The subparsers of the program, to which each command adds its parser.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


_FILES = "file, folder or pattern, also with its format, such as csv:PATH?delimiter=;"


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--debug``."""
    parser.add_argument("--debug", action="store_true", help="show tracebacks and debug messages")


def names_of(option: str) -> list[str]:
    """Return the names of an option: its short one, if it has one, and the long one."""
    return [*([SHORT[option]] if option in SHORT else []), option]


def add_log(parser: argparse.ArgumentParser, default: str | None = "warning", text: str = "warning") -> None:
    """Add the arguments of the log of commands that run as a service; ``text`` says what the default level is."""
    parser.add_argument(
        "--log-level",
        choices=("info", "warning", "error"),
        default=default,
        help=f"what is logged (default {text})",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMS,
        help="lines of the log with time, level and component, as text, or as JSON with what the command says too "
        "(default text; a run over files writes neither)",
    )


def add_repeatable(parser: argparse.ArgumentParser, option: str, form: str, text: str, **arguments: Any) -> None:
    """Add an option that may be repeated; its value is a list, empty by default."""
    parser.add_argument(*names_of(option), metavar=form, action="append", default=[], help=text, **arguments)


def add_settings(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the arguments ``--set`` and ``--debug``; ``text`` is the help text of ``--set``."""
    add_repeatable(parser, "--set", "NAME=VALUE", text, dest="settings")
    add_debug(parser)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--config``."""
    parser.add_argument(
        "--config",
        dest="config_file",
        metavar="FILE",
        help="TOML file of settings; those of --set and of variables STREAMS_... are used before its own",
    )


def add_script(parser: argparse.ArgumentParser, text: str = "Python file that declares the topology") -> None:
    """Add the argument for the script; ``text`` is its help text."""
    parser.add_argument("script", metavar="SCRIPT[:FUNCTION]", help=text)


def add_application_id(parser: argparse.ArgumentParser, text: str = "default: the name of the script") -> None:
    """Add the argument ``--application-id``; ``text`` is its help text."""
    parser.add_argument("--application-id", metavar="ID", help=text)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the script and settings, and ``--debug``."""
    add_script(parser, "Python file that declares the topology, and the function in it (default: topology)")
    add_settings(
        parser,
        "a setting, by Kafka Streams' name (may be repeated); a function as MODULE:FUNCTION, or :FUNCTION of the "
        "script",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that run a topology, live or over history."""
    parser.add_argument(
        *names_of("--partitions"),
        metavar="N",
        type=partition_count,
        help="partitions of every topic that fixes none itself",
    )
    parser.add_argument("--final-flush", action="store_true", help="at the end, emit the windows that are still open")
    add_application_id(parser)


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--input`` of commands that read files as they are, without their history."""
    add_repeatable(parser, "--input", "TOPIC=PATH", _FILES + " that a source topic is read from, by name")


_FILE_FORM = "a table on a terminal, else whole records; a .jsonl file of a topic without keys has values"


def add_format(parser: argparse.ArgumentParser, text: str = _FILE_FORM, *others: str) -> None:
    """Add the argument ``--format`` of commands that show records; ``text`` says what the default is."""
    from streams.files import FORMS

    shown = f"aligned columns (table), whole records (json), or values alone, as JSON; default: {text}"
    add_form(parser, shown, (*FORMS, *others))


def add_form(
    parser: argparse.ArgumentParser,
    text: str = "form of what is printed (default text)",
    forms: Sequence[str] = ("text", "json"),
) -> None:
    """Add the argument ``--format``, with the first of the forms as default, and ``--json``, which is short for it."""
    parser.add_argument("--format", choices=forms, default=forms[0], help=text)
    parser.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="json",
        default=argparse.SUPPRESS,
        help="the same as --format json",
    )


def add_view(parser: argparse.ArgumentParser, drawing: str) -> None:
    """Add the argument ``--format`` of commands that show a report; ``drawing`` says what its svg is."""
    text = f"for reading (table), lines for other programs (text), or a drawing of {drawing} (svg)"
    add_form(parser, f"{text}; default: a table on a terminal, else text", ("auto", "table", "text", "json", "svg"))


def opened_outputs(
    paths: Mapping[str, str],
    inputs: Mapping[str, Iterable[str]],
    topic_of: "Callable[[str], Topic[Any, Any] | None]",
    form: str,
) -> "dict[str, FileOutput]":
    """Return the writers of outputs in the form of ``--format``, by topic; ``inputs`` are the files that are read.

    Several topics may go to standard output, whose lines then name their topic.

    Raises:
        OutputError: a file cannot be written, or not in this form.
        UsageError: no output has a form, or a file is that of another topic.
    """
    from streams.files import STANDARD_OUTPUT, open_output

    if not paths and form != "auto":
        raise UsageError(f"--format {form}: needs an --output that is a file or -")
    taken = {os.path.realpath(file): f"--input {topic}" for topic, files in inputs.items() for file in files}
    for topic, path in paths.items():
        if path == STANDARD_OUTPUT:
            continue
        if (place := os.path.realpath(path)) in taken:
            raise UsageError(f"--output {topic}={path}: the file is already that of {taken[place]}; choose another")
        taken[place] = f"--output {topic}"
    shown = [topic for topic, path in paths.items() if path == STANDARD_OUTPUT]
    width = max(map(len, shown)) if len(shown) > 1 else 0
    return {
        name: open_output(topic_of(name), path, form, name.ljust(width) if width else "")
        for name, path in paths.items()
    }


def add_examples(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the argument ``--limit`` of commands that show what differs."""
    add_limit(parser, f"{text} of each topic and store", 5, least=0)


def add_limit(parser: argparse.ArgumentParser, text: str, default: int, least: int = 1) -> None:
    """Add the argument ``--limit``: how much of something is shown."""
    parser.add_argument(
        "--limit", metavar="N", type=number_of("examples", least), default=default, help=f"{text} (default {default})"
    )


def add_wall_clock(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the argument ``--wall-clock`` of commands that run over ``what``."""
    parser.add_argument(
        "--wall-clock",
        choices=("error", "skip", "append_time"),
        default="error",
        help=f"how wall-clock time, which {what} does not have, is treated (default error)",
    )


def add_tasks(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--task``, which limits a command to the given tasks."""
    add_repeatable(parser, "--task", "N_N", "only this task (may be repeated)")


def add_execute(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--execute``, without which a command only prints its plan."""
    parser.add_argument("--execute", dest="is_executed", action="store_true", help="do it (default: print the plan)")


def add_history(parser: argparse.ArgumentParser, *, executor: str) -> None:
    """Add the arguments of commands that replay history."""
    add_repeatable(parser, "--input", "TOPIC=PATH", f"history of a source topic (may be repeated): {_FILES}")
    parser.add_argument(
        "--executor", choices=("spark", "local"), default=executor, help=f"what runs the tasks (default {executor})"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master, or sc://HOST:PORT (default local[*])")
    add_run(parser)
    parser.add_argument(
        "--since", metavar="TIME", help="rows of tables from this time on: ISO text or epoch milliseconds"
    )
    add_times(parser)
    parser.add_argument(
        "--slices",
        metavar="1d|N",
        help="divide history: a span of event time, a number of slices up to 1000, or above that records in each",
    )


def add_times(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the time of history: its end, and the treatment of wall-clock time."""
    parser.add_argument("--until", metavar="TIME", help="end before this time: ISO text or epoch milliseconds")
    parser.add_argument(
        "--order",
        choices=("event-time", "as-given"),
        help="order of records from files in each partition (default: event-time for a folder, else as-given)",
    )
    add_wall_clock(parser, "history")


def plan_of(options: argparse.Namespace, **others: Any) -> "Plan":
    """Return the plan of a replay: the arguments that are named as its fields, and ``others``."""
    from attrs import fields

    from streams.replay import Plan

    values = {name: getattr(options, name, None) for name in [field.name for field in fields(Plan)]}
    values["order"] = values["order"] and values["order"].replace("-", "_")
    return Plan(**{name: value for name, value in {**values, **others}.items() if value is not None})


def number_of(what: str, low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a function that parses a number from ``low`` to ``high``.

    >>> number_of("workers", 1, 256)("3")
    3
    """
    bounds = f"{low} or more" if high is None else f"{low} to {high}"

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) and (high is None or int(text) <= high)):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what}; give {bounds}")
        return int(text)

    return parse


#: Parses a partition count.
partition_count = number_of("partitions", 1, 10_000)


def texts_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings given by ``--set``, with their values as text.

    Raises:
        UsageError: a setting has no value, or is given twice.
    """
    return dict(pairs(options.settings, "--set", "NAME=VALUE"))


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given by ``--set``; functions, given as MODULE:FUNCTION, are loaded.

    Raises:
        UsageError: a setting has no value, or is given twice.
        ScriptError: a function cannot be loaded.
        ConfigError: a setting does not exist.
    """
    from streams.cli.scripts import Script, function_named
    from streams.core.settings.config import SETTINGS, setting_name
    from streams.core.settings.setting_sources import imported

    settings: dict[str, Any] = {}
    for spelling, text in texts_of(options).items():
        name = setting_name(spelling)
        if name in settings:
            raise UsageError(f"--set {spelling}={text}: {name!r} is given twice; give it once")
        is_function = ":" in text and SETTINGS[name].takes_function
        if is_function:
            script = getattr(options, "script", None) or getattr(options, "old", None)
            load = imported if script is None else partial(function_named, Script.parse(script))
            settings[name] = load(f"--set {spelling}", text)
        else:
            settings[name] = text
    return settings


def all_settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given by ``--set``, else by the environment, else by the file of ``--config``.

    Raises:
        UsageError: a setting of ``--set`` has no value, or is given twice.
        ScriptError: a function cannot be loaded.
        ConfigError: a setting does not exist, or a value from the environment or the file is invalid.
    """
    from streams.cli.scripts import Script, function_named
    from streams.core.settings.setting_sources import (
        environment_settings,
        file_settings,
        imported,
        merged,
        secret_names,
    )

    chosen = settings_of(options)
    for name in chosen.keys() & secret_names():
        say(
            f"--set {name}: others on this machine see it in the list of processes; set {name}_file or "
            f"{name}_command, or the variable STREAMS_{name.upper()}"
        )
    script = getattr(options, "script", None)
    load = imported if script is None else partial(function_named, Script.parse(script))
    file = {} if options.config_file is None else file_settings(options.config_file, load)
    return merged(file, environment_settings(os.environ, load), chosen)


def pairs(texts: Iterable[str], option: str, form: str) -> list[tuple[str, str]]:
    """Return the name and value of each NAME=VALUE argument.

    Raises:
        UsageError: an argument has no ``=``, an empty name or an empty value, or a name is given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value:
            raise UsageError(f"{option} {text}: expected {option} {form}")
        if name.strip() in values:
            raise UsageError(f"{option} {text}: {name.strip()!r} is given twice; give it once")
        values[name.strip()] = value
    return list(values.items())


def address(text: str) -> str:
    """Check that the text has the form HOST:PORT, and return it.

    Raises:
        ArgumentTypeError: the text is not HOST:PORT.
    """
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return text
