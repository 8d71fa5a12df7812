"""``streams diff``: compare two versions of a topology over the same history, and check for a takeover."""

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_examples, add_history, add_settings, add_view, pairs, plan_of, settings_of

if TYPE_CHECKING:
    from streams.cli.scripts import Script
    from streams.comparison import Version
    from streams.core.settings.config import StreamsConfig
    from streams.replay import ReplayResult
    from streams.topology import Topology

#: Exit status if the versions differ.
DIFFERENT = 1
_EXAMPLES = """\
examples:
  streams diff v1/shop.py v2/shop.py --input orders=orders.jsonl
  streams diff shop.py shop_new.py --only-state --application-id shop
exit status: 0 nothing differs and the state can be taken over, 1 something differs, 2 invalid arguments
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams diff`` and its arguments to the program."""
    parser = commands.add_parser(
        "diff",
        description="Replay the same history through two versions of a topology; show which keys, windows and records "
        "differ, and whether the new version can take over the state of the old one.",
        epilog=_EXAMPLES,
    )
    for name, what in (("old", "the version that is live"), ("new", "the version that replaces it")):
        parser.add_argument(name, metavar=f"{name.upper()}[:FUNCTION]", help=f"Python file that declares {what}")
    add_history(parser, executor="local")
    parser.add_argument("--only-state", action="store_true", help="do not replay: only check whether NEW can take over")
    add_examples(parser, "examples")
    add_view(parser, "both topologies")
    add_settings(parser, "a setting of both versions, by Kafka Streams' name (may be repeated)")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Compare the versions and print the differences."""
    from streams.cli import diff_report
    from streams.cli.scripts import Script
    from streams.cli.terminal import console, show
    from streams.comparison import compare
    from streams.files import standard_form

    inputs = dict(pairs(options.input, "--input", "TOPIC=PATH"))
    _check(options, inputs)
    scripts = Script.parse(options.old), Script.parse(options.new)
    settings = scripts[0].settings(settings_of(options), options.application_id)
    sides = [_Side(script, settings, options) for script in scripts]
    with ExitStack() as stack:
        for side in sides:
            side.load()
        _check_inputs(sides, inputs)
        versions = [side.version(inputs, stack) for side in sides]
        comparison = compare(versions[0], versions[1], limit=options.limit)
        title = diff_report.Title(settings["application_id"], options.old, options.new, options.only_state)
        form = standard_form(options.format, "text")
        if form == "table":
            show(*diff_report.as_view(comparison, title, console().width))
        elif form == "json":
            print(diff_report.as_json(comparison, title))
        elif form == "svg":
            print(comparison.to_svg(), end="")
        else:
            print(diff_report.as_text(comparison, title))
    return 0 if comparison.is_same and comparison.take_over.is_clean else DIFFERENT


def _check(options: argparse.Namespace, inputs: Mapping[str, str]) -> None:
    if options.only_state and inputs:
        raise UsageError("--only-state replays nothing: omit --input or --only-state")
    if not options.only_state and not inputs:
        raise UsageError("give the history, --input TOPIC=PATH, or --only-state to check the take-over alone")
    if options.master is not None and options.executor != "spark":
        raise UsageError("--master is Spark's: give --executor spark too")


def _check_inputs(sides: "list[_Side]", inputs: Mapping[str, str]) -> None:
    """Check that each topic of ``--input`` is read by at least one of the two versions."""
    from streams.cli.topic_declarations import declared_source

    for topic in inputs:
        if not any(side.reads(topic) for side in sides):
            declared_source(sides[0].topology, topic)


@define(eq=False)
class _Side:
    """One of the two versions, with its script, topology and replay."""

    script: "Script"
    settings: Mapping[str, Any]
    options: argparse.Namespace
    definition: Any = None
    topology: "Topology" = field(init=False)
    config: "StreamsConfig" = field(init=False)
    world: Any = field(init=False)

    def load(self) -> None:
        """Run the script and build its topology.

        Raises:
            ScriptError: the script cannot be loaded, or its topology cannot be built.
        """
        from streams.cli.scripts import built, source
        from streams.cli.worlds import ScriptModules
        from streams.core.settings.config import StreamsConfig

        self.config = StreamsConfig.of(**self.settings)
        self.world = ScriptModules()
        with self.world.inside():
            self.definition = source(self.script)
            self.topology = built(self.script, self.definition, self.config)

    def reads(self, topic: str) -> bool:
        """Return whether a topic is an external input of the version."""
        from streams.cli.topic_declarations import declared_source

        try:
            declared_source(self.topology, topic)
        except UsageError:
            return False
        return True

    def version(self, inputs: Mapping[str, str], stack: ExitStack) -> "Version":
        """Return the version, which has been replayed unless only the state is compared.

        ``stack`` closes the resources of the replay.
        """
        from streams.comparison import Version

        with self.world.inside():
            if self.options.only_state:
                return Version.planned(self.topology, self.config, self.options.partitions)
            own = {topic: path for topic, path in inputs.items() if self.reads(topic)}
            self._say_empty(own)
            try:
                result = stack.enter_context(self._replayed(own))
            except Exception:
                say(f"{self.script.path}: the replay failed:")
                raise
            return Version.of(result)

    def _say_empty(self, own: Mapping[str, str]) -> None:
        from streams.cli.topic_declarations import source_topics

        for name in sorted(source_topics(self.topology) - own.keys()):
            say(f"{self.script.path}: topic {name!r} has no --input: it stays empty")

    def _replayed(self, own: Mapping[str, str]) -> "ReplayResult":
        from streams.cli.commands.replay import state_of
        from streams.cli.progress import shown
        from streams.replay import replay

        with shown(str(self.script.path)) as show:
            return replay(
                self.definition,
                own,
                evolve(plan_of(self.options), progress=show and (lambda progress: show(*state_of(progress)))),
                **self.settings,
            )
