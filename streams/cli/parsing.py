"""The parser of the command line: its messages, and its help, in which options stand by what they are for."""

import argparse
import textwrap
from typing import Any, NoReturn

from streams.cli.mistakes import MISTAKE
from streams.core.nearest import meant

#: The short names of options that are typed all day, in every command that has them.
SHORT = {"--input": "-i", "--output": "-o", "--bootstrap-servers": "-b", "--partitions": "-p"}
#: Options that several commands share, by what they are for.  The others are the command's own, and come first.
GROUPS = {
    "Records in and out": "input next output format json limit max partition-by overwrite report",
    "Time and order": "since until order wall-clock slices final-flush max-dropped",
    "Where it runs": "bootstrap-servers state-dir listen advertise registry data executor master conf archives "
    "partitions workers http http-token-file",
    "State": "from-snapshot snapshot state-from directory resume repair keep-states",
    "Who may connect": "tls-cert tls-key tls-key-password-file tls-client-ca users",
    "Settings": "application-id set config log-level log-format no-color debug help",
}
_GROUP_OF = {f"--{name}": group for group, names in GROUPS.items() for name in names.split()}
_PLACES = {option: place for place, option in enumerate(_GROUP_OF)}
_OWN = "Options"
_ARGUMENTS = "Arguments"
_EXAMPLES = "examples:"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Writes ``-i, --input TOPIC=PATH``: argparse repeats the value behind each name."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class Parser(argparse.ArgumentParser):
    """A parser whose error messages refer to the help instead of printing the whole usage.

    Options cannot be abbreviated.  The value of an option cannot be empty, as that of a shell variable that is not
    set: the option would have no effect, or its default.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **arguments})

    def format_help(self) -> str:
        """Return usage, description, examples, and the arguments and options by what they are for."""
        options = [action for action in self._actions if action.option_strings and action.help != argparse.SUPPRESS]
        required = [action for action in self._actions if action.required or not action.option_strings]
        usage = argparse.HelpFormatter(f"{self.prog} [OPTIONS]" if options else self.prog)
        usage.add_usage(self.usage, required, [])
        formatter = self._get_formatter()
        notes, _, examples = (self.epilog or "").partition(_EXAMPLES)
        formatter.add_text(_wrapped(self.description or ""))
        if examples:
            formatter.add_text(f"{_EXAMPLES.capitalize()}{examples.rstrip()}")
        sections: dict[str, list[argparse.Action]] = {title: [] for title in (_ARGUMENTS, _OWN, *GROUPS)}
        sections[_ARGUMENTS] = [action for action in required if not action.option_strings]
        for action in sorted(options, key=lambda action: _PLACES.get(action.option_strings[-1], -1)):
            sections[_GROUP_OF.get(action.option_strings[-1], _OWN)].append(action)
        for title, actions in sections.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(notes if self.usage else _wrapped(notes))
        return f"{usage.format_help()}\n{formatter.format_help()}"

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.option_strings and not arg_string:
            raise argparse.ArgumentError(action, "its value is empty; give one, or leave the option out")
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"there is no {value!r}; {meant(str(value), map(str, action.choices))}"
            )
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Exit with the message and status 2."""
        self.exit(MISTAKE, f"streams: {message} ({self.prog} --help)\n")


def _wrapped(text: str) -> str:
    """Return text with each of its paragraphs as wide as the terminal."""
    width = argparse.HelpFormatter("")._width
    return "\n\n".join(textwrap.fill(" ".join(part.split()), width) for part in text.split("\n\n") if part.strip())
