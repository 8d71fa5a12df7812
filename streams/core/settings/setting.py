"""Settings: name, type, unit, default, bounds and meaning, and how values are parsed and validated.

Settings of applications, clients, brokers, topics and groups are declared with these functions, as fields of attrs
classes. Parsing, messages, the reference page, ``--set`` and what brokers tell about configurations are all derived
from these fields. This module imports only other modules of ``core``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs
from attrs import field, frozen

from streams.core.errors import ConfigError
from streams.core.nearest import meant, nearest

T = TypeVar("T")

#: Called with the name of a setting and a value; returns whether the value is a function that the setting accepts.
FunctionCheck: TypeAlias = Callable[[str, Any], bool]

#: What follows the name of a secret: the secret itself, the file or the command that has it in its first line.
SECRET_FORMS = ("", "_file", "_command")

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")

#: The largest numbers of Kafka's types INT and LONG.
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
# The form of numbers in texts: Python would accept other digits, and underscores between digits.
_NUMBERS: Final[Mapping[str, tuple[re.Pattern[str], Callable[[str], float], Any]]] = {
    "int": (re.compile(r"[+-]?\d+", re.ASCII), int, (int,)),
    "decimal": (re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII), float, (int, float)),
}


@frozen
class Setting:
    """One setting in a table of settings.

    Attributes:
        kind: int, decimal, bool, text, choice or list; a choice has ``choices``, and ``synonyms`` for them; a list is
            a text of items, joined with commas, which are ``choices`` if there are any.
        unit: the unit of a number, such as ms or bytes.
        minimum, maximum: inclusive bounds of a number.
        takes_text: returns whether a text is accepted instead of a choice, or None; ``example`` is such a text.
        takes_function: returns whether a value is a function that is accepted instead of a choice, or None.
        check: raises ConfigError for an invalid text.
        aliases: other accepted names: Kafka's name if it differs, and short forms.
        takes_none: whether None is accepted and selects the default.
        none_text: the text of None, if the value of a number may be None.
        is_fixed: whether the setting of a topic cannot be altered.
        broker_name: Kafka's name of the broker's setting for topics that have none of their own; empty without one.
        doc: what the setting does; empty if it is only accepted and shown because Kafka has it.
        is_secret: whether messages omit the value.
        joins: whether a list of texts is accepted and joined with commas.
        of_pairs: whether the text is NAME=VALUE pairs, joined with commas; a mapping is accepted.
    """

    name: str
    kind: str
    default: Any
    doc: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = field(factory=dict)
    minimum: float | None = None
    maximum: float | None = None
    takes_text: Callable[[str], bool] | None = None
    example: str = ""
    takes_function: FunctionCheck | None = None
    check: Callable[[str], None] | None = None
    aliases: tuple[str, ...] = ()
    takes_none: bool = False
    none_text: str = ""
    is_fixed: bool = False
    broker_name: str = ""
    is_secret: bool = False
    joins: bool = False
    of_pairs: bool = False

    @property
    def expected(self) -> str:
        """A description of the valid values, for messages."""
        if self.kind == "choice":
            names = " or ".join(filter(None, self.choices)) + (
                f", or a text such as {self.example}" if self.example else ""
            )
            return f"{names}, or a function" if self.takes_function else names
        if self.kind == "bool":
            return "true or false"
        if self.kind == "text":
            return "NAME=VALUE, comma-separated" if self.of_pairs else "text"
        if self.kind == "list":
            return f"{' or '.join(self.choices) or 'items'}, comma-separated"
        number = "a whole number" if self.kind == "int" else "a number"
        unit = f" of {self.unit}" if self.unit else ""
        bounds = [("at least", self.minimum), ("at most", self.maximum)]
        alternative = f", or {self.none_text}" if self.none_text else ""
        return (
            number + unit + "".join(f", {words} {bound}" for words, bound in bounds if bound is not None) + alternative
        )

    @property
    def kafka_name(self) -> str:
        """The name with dots, as it is in a configuration of Kafka: the first alias, if there is one."""
        return (*self.aliases, self.name)[0].replace("_", ".")

    def text_of(self, value: Any) -> str:
        """Return a valid value as text, in the form of Kafka."""
        if value is None:
            return self.none_text
        return str(value).lower() if self.kind == "bool" else str(value)

    def parse(self, value: Any) -> Any:
        """Return the validated value. Text is parsed, and a ``timedelta`` is accepted if the unit is ms.

        Raises:
            ConfigError: the value is invalid.
        """
        if value is None and self.takes_none:
            return self.default
        if self.none_text and value in (None, self.none_text):
            return None
        return _PARSERS[self.kind](self, value)

    def misfit(self, value: Any) -> ConfigError:
        """Return the error for a value that is not valid for this setting."""
        shown = "the given value" if self.is_secret else f"{value!r:.100} of type {type(value).__qualname__}"
        return ConfigError(f"setting {self.name!r}: expected {self.expected}, not {shown}")


# --- declaring ------------------------------------------------------------------------


def whole(default: int, unit: str, doc: str, *, minimum: int = 0, **more: Any) -> Any:
    """Declare a setting whose value is a whole number.

    ``application`` (here and below) overrides attributes of the setting for applications, for example
    ``{"default": 10_000}``. With ``of_client`` the setting exists only for clients; without ``is_shown`` it is not part
    of the repr.
    """
    return _declared("int", default, doc, unit=unit, minimum=minimum, **more)


def number(
    name: str, default: int | None, unit: str = "", doc: str = "", *, maximum: int = INT_MAX, **more: Any
) -> Any:
    """Declare a whole number with Kafka's name, such as ``retention.ms``; by default of Kafka's type INT."""
    return whole(cast("int", default), unit, doc, maximum=maximum, aliases=(name.replace(".", "_"),), **more)


def decimal(default: float, doc: str, **more: Any) -> Any:
    """Declare a setting whose value is a number."""
    return _declared("decimal", default, doc, **more)


def text(default: str | None, doc: str = "", **more: Any) -> Any:
    """Declare a setting whose value is text."""
    return _declared("text", default, doc, **more)


def flag(default: bool | None, doc: str = "", **more: Any) -> Any:
    """Declare a boolean setting."""
    return _declared("bool", default, doc, **more)


def choice(default: str, choices: tuple[str, ...], doc: str, **more: Any) -> Any:
    """Declare a setting whose value is one of ``choices``."""
    return _declared("choice", default, doc, choices=choices, **more)


def items(default: str, choices: tuple[str, ...], doc: str = "", **more: Any) -> Any:
    """Declare a setting whose value is a list of ``choices``, or of any items if these are empty."""
    return _declared("list", default, doc, choices=choices, **more)


def group(kind: type[T], *, of_application: bool = False) -> T:
    """Declare a field that is itself a settings class, with the defaults for applications or for clients."""
    rows = table_of(cast("Any", kind), of_application=True) if of_application else {}
    default = replaced(kind(), {name: row.default for name, row in rows.items()})
    declared: T = field(default=default, metadata={"group": kind})
    return declared


def _declared(
    kind: str,
    default: Any,
    doc: str,
    *,
    application: Mapping[str, Any] | None = None,
    of_client: bool = False,
    is_shown: bool = True,
    **more: Any,
) -> Any:
    facts = {"kind": kind, "doc": doc, **more}
    metadata = {"facts": facts, "application": application or {}, "of_client": of_client}
    return field(default=default, repr=is_shown and not more.get("is_secret", False), metadata=metadata)


# --- reading --------------------------------------------------------------------------


@cache
def table_of(kind: Any, *, of_application: bool = False) -> Mapping[str, Setting]:
    """Return the settings of a class by name: its own settings, followed by those of its groups.

    ``of_application`` omits the settings that exist only for clients, and uses the defaults for applications.
    """
    table: dict[str, Setting] = {}
    for part in _fields(kind):
        facts = part.metadata
        if not (of_application and facts["of_client"]):
            row = Setting(name=part.name, default=part.default, **facts["facts"])
            table[part.name] = attrs.evolve(row, **facts["application"]) if of_application else row
    for _, inner in _groups(kind):
        table.update(
            (name, row) for name, row in table_of(inner, of_application=of_application).items() if name not in table
        )
    return table


def kafka_table(kind: Any) -> Mapping[str, Setting]:
    """Return the settings of a class and of its groups by Kafka's name."""
    return {row.kafka_name: row for row in table_of(kind).values()}


def check(value: Any) -> None:
    """Check the settings of an object that was made without parsing.

    Raises:
        ConfigError: a value is invalid.
    """
    kind: Any = type(value)
    for name, row in table_of(kind).items():
        if hasattr(value, name) and row.parse(getattr(value, name)) != getattr(value, name):
            raise row.misfit(getattr(value, name))


def texts_of(value: Any) -> dict[str, str]:
    """Return settings, and those of their groups, as texts by Kafka's name; a setting without a value is left out.

    >>> from streams.core.settings.client_settings import ConnectionSettings
    >>> texts_of(ConnectionSettings())["connections.max.idle.ms"]
    '540000'
    """
    kind: Any = type(value)
    texts = {}
    table = table_of(kind)
    for row in (table[part.name] for part in _fields(kind)):
        current = getattr(value, row.name)
        if current is not None or row.none_text:
            texts[row.kafka_name] = row.text_of(current)
    for name, _ in _groups(kind):
        texts |= texts_of(getattr(value, name))
    return texts


def with_texts(value: T, texts: Mapping[str, Any], table: Mapping[str, Setting], what: str) -> T:
    """Return a copy of a settings object with other values, which are texts by the names of ``table``.

    The names have to be exact, as in Kafka. ``what`` has the settings, such as "topics".

    Raises:
        ConfigError: a name is unknown, or a value is invalid or no text.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        row = table.get(name)
        if row is None:
            raise ConfigError(f"{what} have no setting {name}: {meant(name, table)}")
        if not isinstance(text, str):
            example = row.text_of(row.default)
            raise ConfigError(f"setting {name!r}: expected text, such as {example!r}, not {type(text).__name__}")
        values[row.name] = attrs.evolve(row, name=name).parse(text)
    return replaced(value, values)


def changed(value: T, settings: Mapping[str, Any]) -> T:
    """Return a copy of a group of settings with other values, which are parsed and validated.

    Raises:
        ConfigError: a name is unknown or given twice, or a value is invalid.
    """
    return replaced(value, parsed(settings, table_of(cast("Any", type(value))))) if settings else value


def replaced(value: T, parsed: Mapping[str, Any], *, is_part: bool = False) -> T:
    """Return a copy of a settings object and its groups with other values, which must already be parsed.

    Settings that exist only for clients are not changed in groups: an application setting of the same name is a
    different setting.
    """
    kind: Any = type(value)
    changes = {
        part.name: parsed[part.name]
        for part in _fields(kind)
        if part.name in parsed and not (is_part and part.metadata["of_client"])
    }
    for name, _ in _groups(kind):
        changes[name] = replaced(getattr(value, name), parsed, is_part=True)
    copy: T = attrs.evolve(value, **changes)  # type: ignore[misc]
    return copy


def _fields(kind: type) -> Iterator[Any]:
    return (part for part in attrs.fields(kind) if "facts" in part.metadata)


def _groups(kind: type) -> Iterator[tuple[str, type]]:
    return ((part.name, part.metadata["group"]) for part in attrs.fields(kind) if "group" in part.metadata)


def pairs_of(text: str) -> dict[str, str]:
    """Return the pairs of a setting whose text is NAME=VALUE, comma-separated.

    >>> pairs_of("zone=a, cluster=k8s-1")
    {'zone': 'a', 'cluster': 'k8s-1'}

    Raises:
        ValueError: a part is not NAME=VALUE, or a name occurs twice.
    """
    pairs: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{part.strip()!r} is not NAME=VALUE")
        if name in pairs:
            raise ValueError(f"{name!r} is given twice")
        pairs[name] = value
    return pairs


def canonical_name(name: str, table: Mapping[str, Setting]) -> str:
    """Return the canonical name of a setting, given that name or Kafka's, with any dots, dashes and case.

    Raises:
        ConfigError: the setting is unknown; the message suggests the nearest name.
    """
    folded = name.strip().lower().replace(".", "_").replace("-", "_")
    if folded in table:
        return folded
    aliases = {alias: setting.name for setting in table.values() for alias in setting.aliases}
    if folded in aliases:
        return aliases[folded]
    near = nearest(folded, [*table, *aliases])
    hint = f"did you mean {aliases.get(near, near)!r}?" if near else "the reference lists all settings"
    raise ConfigError(f"unknown setting {name!r}: {hint}")


def parsed(settings: Mapping[str, Any], table: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the given settings by their canonical names, with parsed and validated values.

    Raises:
        ConfigError: a name is unknown or given twice, or a value is invalid.
    """
    values: dict[str, Any] = {}
    for name, value in settings.items():
        ours = canonical_name(name, table)
        if ours in values:
            raise ConfigError(f"setting {ours!r} is given twice, once as {name!r}")
        values[ours] = table[ours].parse(value)
    return values


# --- kinds ----------------------------------------------------------------------------


def _parse_number(setting: Setting, value: Any) -> Any:
    if setting.unit == "ms" and isinstance(value, timedelta):
        if timedelta(0) < value < timedelta(milliseconds=1):
            raise setting.misfit(value)
        value = value // timedelta(milliseconds=1)
    pattern, number_of, kinds = _NUMBERS[setting.kind]
    # Python refuses to parse numbers of thousands of digits.
    is_number = isinstance(value, str) and len(value) < 100 and pattern.fullmatch(value.strip())
    number: Any = number_of(value) if is_number else value
    if not isinstance(number, kinds) or isinstance(number, bool):
        raise setting.misfit(value)
    if setting.minimum is not None and number < setting.minimum:
        raise setting.misfit(value)
    if setting.maximum is not None and number > setting.maximum:
        raise setting.misfit(value)
    return number


def _parse_bool(setting: Setting, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise setting.misfit(value)


def _parse_text(setting: Setting, value: Any) -> str:
    if setting.joins and isinstance(value, (list, tuple)):
        if all(isinstance(part, str) for part in value):
            return ",".join(value)
        raise setting.misfit(value)
    if setting.of_pairs and isinstance(value, Mapping):
        value = _joined(setting, value)
    if hasattr(value, "__fspath__"):  # The value may be a Path for settings that name a directory or file.
        value = value.__fspath__()
    if not isinstance(value, str):
        raise setting.misfit(value)
    if setting.of_pairs:
        try:
            pairs_of(value)
        except ValueError as error:
            raise ConfigError(f"setting {setting.name!r}: expected {setting.expected}: {error}") from None
    if setting.check is not None:
        setting.check(value)
    return value


def _joined(setting: Setting, pairs: Mapping[Any, Any]) -> str:
    for name, value in pairs.items():
        if not (isinstance(name, str) and isinstance(value, str)) or {"=", ","} & {*name} or "," in value:
            raise ConfigError(
                f"setting {setting.name!r}: {name!r}: {value!r}: must be text, without ',' (and '=' in names)"
            )
    return ",".join(f"{name}={value}" for name, value in pairs.items())


def _parse_choice(setting: Setting, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        folded = _folded(setting.synonyms.get(value.strip(), value.strip()))
        for word in setting.choices:
            if folded == _folded(word):
                return word
        if setting.takes_text is not None and setting.takes_text(value.strip()):
            return value.strip()
    elif setting.takes_function is not None and setting.takes_function(setting.name, value):
        return value
    raise setting.misfit(value)


def _parse_list(setting: Setting, value: Any) -> str:
    if not isinstance(value, str):
        raise setting.misfit(value)
    parts = [part.strip() for part in value.split(",")] if value.strip() else []
    if setting.choices and not {*parts} <= {*setting.choices}:
        raise setting.misfit(value)
    return ",".join(parts)


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")


_PARSERS: Mapping[str, Callable[[Setting, Any], Any]] = {
    "int": _parse_number,
    "decimal": _parse_number,
    "bool": _parse_bool,
    "text": _parse_text,
    "choice": _parse_choice,
    "list": _parse_list,
}
