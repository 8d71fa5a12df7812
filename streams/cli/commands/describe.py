"""``streams describe``: describe a topology as text, JSON, Mermaid or SVG."""

import argparse

from streams.cli.options import Commands, add_common, add_form, settings_of

FORMATS = ("text", "mermaid", "json", "svg", "program", "columns")


def add_parser(commands: Commands) -> None:
    """Add ``streams describe`` and its arguments to the program."""
    parser = commands.add_parser(
        "describe",
        description="Show the sub-topologies, internal topics and stores of a topology.",
    )
    add_common(parser)
    add_form(
        parser,
        "form of the description (default text); program: the generated Python code; columns: what a replay "
        "computes by columns, and why not the rest",
        FORMATS,
    )
    parser.add_argument("--all-nodes", action="store_true", help="svg: a box for each node, topic and store")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Print the description of the topology."""
    from streams.cli.scripts import Script, load
    from streams.core.settings.config import StreamsConfig
    from streams.runtime import steps
    from streams.topology import describe

    script = Script.parse(options.script)
    settings = {"application_id": script.application_id, **settings_of(options)}
    config = StreamsConfig.of(**settings)
    topology = load(script, config)
    if options.format == "program":
        from streams.runtime import programs

        print("\n\n".join(programs(topology, config)), end="")
        return 0
    if options.format == "columns":
        from streams.topology.columns.paths import verdicts

        print("\n".join(map(str, verdicts(topology))))
        return 0
    description = describe(topology, has_cache=config.cache_max_bytes > 0, steps=steps(topology, config))
    if options.format == "json":
        print(description.to_json())
    elif options.format == "mermaid":
        print(description.to_mermaid(), end="")
    elif options.format == "svg":
        print(description.to_svg(is_simple=not options.all_nodes), end="")
    else:
        print(description.to_text(), end="")
    return 0
