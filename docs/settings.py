"""Writes the page of settings from the table in the code: ``python docs/settings.py``."""

from collections.abc import Iterable
from pathlib import Path

from attrs import evolve

from streams.broker.logs.config import TOPIC_DEFAULTS, TOPIC_SETTINGS, BrokerConfig
from streams.core.settings.client_settings import ConsumerSettings, ParallelSettings, ProducerSettings
from streams.core.settings.config import SETTINGS
from streams.core.settings.setting import Setting, table_of
from streams.group import CoordinatorConfig

PAGE = Path(__file__).parent / "reference" / "settings.md"


def _rows(settings: Iterable[Setting]) -> list[str]:
    return [
        "| name | value | default | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{setting.name}` | {setting.expected.replace('|', '/')} | `{setting.default!r}` | {setting.doc} |"
            for setting in settings
            if setting.doc
        ),
    ]


def page() -> str:
    """Return the page: one row per setting, in the order of the tables."""
    head = [
        "# Settings",
        "",
        "Pass them as keyword arguments to `Streams`, `run` and `TopologyTestDriver`, or with `--set NAME=VALUE`.",
        "Names are Kafka Streams' own in snake_case; an unknown one is an error, which type checkers find too.",
        "A function is given with `--set` as `MODULE:FUNCTION`, from a module beside the script, or `:FUNCTION` of the",
        "script itself; see [handlers](../guide/rules-errors.md#handlers-as-functions).",
        "",
        "`streams run` and the commands for a cluster also take them from the environment, as `STREAMS_NAME`, and from",
        "a TOML file (`--config FILE`); in a program, `load_settings` does. Of a setting that is given more than once,",
        "the argument is used before the environment, and this before the file; see",
        "[configuration](../guide/configuration.md). Each secret has two other forms, of which one is enough:",
        "`NAME_file` and `NAME_command`.",
        "",
        "All are heeded by a live application. Those of consumer, producer, network and group have nothing to do in",
        "`TopologyTestDriver` and `replay`, which have neither clients nor a group. Nor has `state_dir`: their stores",
        "are in memory, or in the `directory=` of the replay. A run over files has a broker, clients and a group of",
        "its own; it reads its inputs from their beginning, whatever `auto_offset_reset` is. `simulate` has a state",
        "folder for each simulated machine, and names its application and members itself.",
        "",
    ]
    clients = [
        "",
        "## Of a consumer or producer alone",
        "",
        "`Consumer(...)` and `Producer(...)` take theirs as keyword arguments too, with Kafka's defaults. `settings=`",
        "takes many at once: `ConsumerSettings.of(...)`, `ProducerSettings.of(...)`.",
        "",
        "### `Consumer`",
        "",
        *_rows(table_of(ConsumerSettings).values()),
        "",
        "### `Producer`",
        "",
        *_rows(table_of(ProducerSettings).values()),
        "",
        "### `ParallelConsumer`",
        "",
        "Besides those of a consumer:",
        "",
        *_rows(table_of(ParallelSettings).values()),
    ]
    brokers = [
        "",
        "## Of the embedded broker",
        "",
        "`EmbeddedBroker(...)` takes them as keyword arguments. With the names of Kafka's brokers, its argument",
        '`settings={"log.retention.ms": "3600000"}` and `streams broker --set` take all of them, and those of groups',
        "and topics below; `kafka-configs.sh` shows them so.",
        "",
        *_rows(table_of(BrokerConfig).values()),
        "",
        "### Groups",
        "",
        "`CoordinatorConfig(...)` is the argument `group_config` of `EmbeddedBroker`. Those that begin with `consumer`",
        "or `streams` may be set for a group, as `consumer.session.timeout.ms`.",
        "",
        *_rows(table_of(CoordinatorConfig).values()),
        "",
        "### Topics",
        "",
        'Their names are Kafka\'s, and their values are texts: `{"retention.ms": "3600000"}`.',
        "",
        *_rows(evolve(row, name=name, default=row.text_of(row.default)) for name, row in TOPIC_SETTINGS.items()),
        "",
        "The broker's own settings are used by topics that have none:",
        "",
        "| broker | topic |",
        "|---|---|",
        *(f"| `{name}` | `{row.kafka_name}` |" for name, row in TOPIC_DEFAULTS.items()),
    ]
    return "\n".join([*head, *_rows(SETTINGS.values()), *clients, *brokers]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
