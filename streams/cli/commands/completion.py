"""``streams completion``: completion of commands, options, settings, topics and nodes by the shell's Tab key.

argcomplete uses the program's own parser.  Topics and nodes are found by running the script, as every command
does; what it prints is discarded.
"""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_debug
from streams.core.installation import pip_install

if TYPE_CHECKING:
    from streams.topology import Topology

_SHELLS = ("bash", "zsh", "fish")
_EXAMPLES = """\
examples:
  eval "$(streams completion bash)"                                  in ~/.bashrc
  eval "$(streams completion zsh)"                                   in ~/.zshrc, after compinit
  streams completion fish > ~/.config/fish/completions/streams.fish
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams completion`` and its arguments to the program."""
    parser = commands.add_parser(
        "completion",
        description="Print the script by which a shell completes commands, options, settings, and the topics and "
        "nodes of a script, which is run for that.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("shell", choices=_SHELLS, help="shell that reads the script")
    add_debug(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Print the shell script that enables completion.

    Raises:
        UsageError: the library is not installed.
    """
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError as error:
        raise UsageError(f"completion needs argcomplete ({error}): {pip_install('completion')}") from error
    print(shellcode(["streams"], shell=options.shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Print the completions that a shell requests, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options="long", default_completer=cast(Any, _complete))


def _complete(*, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """Return the completions of an argument, by default file names."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.dest == "settings":
        return _settings()
    if str(action.metavar).startswith("TOPIC="):
        topic, equals, path = prefix.partition("=")
        if equals:
            return [f"{topic}={file}" for file in FilesCompleter()(path)]
        return [f"{name}=" for name in _topics(_topology(parsed_args), action.dest)]
    if action.dest == "topic" and not action.option_strings:
        script, colon, _topic = prefix.rpartition(":")
        if colon:
            topology = _topology(argparse.Namespace(script=script))
            return [f"{script}:{name}" for name in _topics(topology, action.dest)]
    if action.dest in ("topic", "node") and action.option_strings:
        topology = _topology(parsed_args)
        return _topics(topology, action.dest) if action.dest == "topic" else _nodes(topology)
    if action.dest in ("script", "topic", "old", "new"):
        return list(FilesCompleter(["py"])(prefix))
    if action.metavar == "DIR":
        return list(DirectoriesCompleter()(prefix))
    return list(FilesCompleter()(prefix))


def _settings() -> list[str]:
    from streams.core.settings.config import SETTINGS

    return [f"{name}=" for name in SETTINGS]


def _topics(topology: "Topology | None", kind: str) -> list[str]:
    """Return the external topics that an argument may name: inputs, outputs, or both."""
    from streams.cli.topic_declarations import sink_topics, source_topics

    if topology is None:
        return []
    inputs = set() if kind == "output" else source_topics(topology)
    return sorted(inputs if kind in ("input", "next") else inputs | sink_topics(topology))


def _nodes(topology: "Topology | None") -> list[str]:
    return [] if topology is None else sorted(topology.nodes)


def _topology(options: argparse.Namespace) -> "Topology | None":
    """Return the topology of the script in the command line; None without a script, or if it cannot be loaded.

    The command reports the error when it is run.
    """
    from streams.cli.mistakes import ScriptError
    from streams.cli.scripts import Script, load
    from streams.core.settings.config import StreamsConfig

    text = getattr(options, "script", None) or getattr(options, "old", None)
    if not text:
        return None
    script = Script.parse(text)
    try:
        return load(script, StreamsConfig.of(application_id=script.application_id))
    except ScriptError:
        return None
