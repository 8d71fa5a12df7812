"""Writes the page of settings from the table in the code: ``python docs/settings.py``."""

from pathlib import Path

from streams.core.config import describe_settings

PAGE = Path(__file__).parent / "reference" / "settings.md"


def page() -> str:
    """Return the page: one row per setting, in the order of the table."""
    rows = [
        f"| `{setting.name}` | {setting.expected.replace('|', '/')} | `{setting.default!r}` | {setting.doc} |"
        for setting in describe_settings()
    ]
    head = [
        "# Settings",
        "",
        "Pass them as keyword arguments to `Streams`, `run` and `TopologyTestDriver`, or with `--set NAME=VALUE`.",
        "Names are Kafka Streams' own in snake_case; an unknown one is an error, which type checkers find too.",
        "A function is given with `--set` as `MODULE:FUNCTION`, from a module beside the script, or `:FUNCTION` of the",
        "script itself; see [handlers](../guide/errors.md#handlers-as-functions).",
        "",
        "All are heeded by a live application. Those of consumer, producer, network and group have nothing to do in",
        "`TopologyTestDriver` and `replay`, which have neither clients nor a group. Nor has `state_dir`: their stores",
        "are in memory, or in the `directory=` of the replay. A run over files has a broker, clients and a group of",
        "its own; it reads its inputs from their beginning, whatever `auto_offset_reset` is. `simulate` has a state",
        "folder for each simulated machine, and names its application and members itself.",
        "",
        "| name | value | default | meaning |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
