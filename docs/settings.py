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
        "Names are Kafka Streams' own in snake_case; an unknown one is an error.",
        "",
        "| name | value | default | meaning |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
