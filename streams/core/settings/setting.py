"""Settings: name, type, unit, default, bounds and meaning, and how values are parsed and validated.

``core.config`` declares the settings with these functions, as fields of attrs classes. Parsing, messages, the
reference page and ``--set`` are all derived from these fields. This module imports only ``core.errors``.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

import attrs
from attrs import field, frozen

from streams.core.errors import ConfigError

T = TypeVar("T")

#: Called with the name of a setting and a value; returns whether the value is a function that the setting accepts.
FunctionCheck: TypeAlias = Callable[[str, Any], bool]

#: What follows the name of a secret: the secret itself, the file or the command that has it in its first line.
SECRET_FORMS = ("", "_file", "_command")

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


@frozen
class Setting:
    """One setting in a table of settings.

    Attributes:
        kind: int, bool, text or choice; a choice has ``choices``, and ``synonyms`` for them.
        unit: the unit of a number, such as ms or bytes.
        minimum, maximum: inclusive bounds of a number.
        takes_text: returns whether a text is accepted instead of a choice, or None; ``example`` is such a text.
        takes_function: returns whether a value is a function that is accepted instead of a choice, or None.
        check: raises ConfigError for an invalid text.
        aliases: other accepted names: Kafka's name if it differs, and short forms.
        takes_none: whether None is accepted and selects the default.
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
    minimum: int | None = None
    maximum: int | None = None
    takes_text: Callable[[str], bool] | None = None
    example: str = ""
    takes_function: FunctionCheck | None = None
    check: Callable[[str], None] | None = None
    aliases: tuple[str, ...] = ()
    takes_none: bool = False
    is_secret: bool = False
    joins: bool = False
    of_pairs: bool = False

    @property
    def expected(self) -> str:
        """A description of the valid values, for messages."""
        if self.kind == "choice":
            names = " or ".join(self.choices) + (f", or a text such as {self.example}" if self.example else "")
            return f"{names}, or a function" if self.takes_function else names
        if self.kind == "bool":
            return "true or false"
        if self.kind == "text":
            return "NAME=VALUE, comma-separated" if self.of_pairs else "text"
        unit = f" of {self.unit}" if self.unit else ""
        bounds = [("at least", self.minimum), ("at most", self.maximum)]
        return "a whole number" + unit + "".join(f", {words} {bound}" for words, bound in bounds if bound is not None)

    def parse(self, value: Any) -> Any:
        """Return the validated value. Text is parsed, and a ``timedelta`` is accepted if the unit is ms.

        Raises:
            ConfigError: the value is invalid.
        """
        if value is None and self.takes_none:
            return self.default
        return _PARSERS[self.kind](self, value)

    def misfit(self, value: Any) -> ConfigError:
        """Return the error for a value that is not valid for this setting."""
        shown = "the given value" if self.is_secret else f"{value!r} of type {type(value).__qualname__}"
        return ConfigError(f"setting {self.name!r}: expected {self.expected}, not {shown}")


# --- declaring ------------------------------------------------------------------------


def whole(default: int, unit: str, doc: str, *, minimum: int = 0, **more: Any) -> Any:
    """Declare a setting whose value is a whole number.

    ``application`` (here and below) overrides attributes of the setting for applications, for example
    ``{"default": 10_000}``. With ``of_client`` the setting exists only for clients; without ``is_shown`` it is not part
    of the repr.
    """
    return _declared("int", default, doc, unit=unit, minimum=minimum, **more)


def text(default: str, doc: str, **more: Any) -> Any:
    """Declare a setting whose value is text."""
    return _declared("text", default, doc, **more)


def flag(default: bool | None, doc: str, **more: Any) -> Any:
    """Declare a boolean setting."""
    return _declared("bool", default, doc, **more)


def choice(default: str, choices: tuple[str, ...], doc: str, **more: Any) -> Any:
    """Declare a setting whose value is one of ``choices``."""
    return _declared("choice", default, doc, choices=choices, **more)


def group(kind: type[T], *, of_application: bool = False) -> T:
    """Declare a field that is itself a settings class, with the defaults for applications or for clients."""
    rows = table_of(cast("Any", kind), of_application=True) if of_application else {}
    default = replaced(kind(), {name: row.default for name, row in rows.items()})
    made: T = field(default=default, metadata={"group": kind})
    return made


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


def changed(value: T, given: Mapping[str, Any]) -> T:
    """Return a copy of a group of settings with other values, which are parsed and validated.

    Raises:
        ConfigError: a name is unknown or given twice, or a value is invalid.
    """
    return replaced(value, parsed(given, table_of(cast("Any", type(value))))) if given else value


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
    made: T = attrs.evolve(value, **changes)  # type: ignore[misc]
    return made


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
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{part.strip()!r} is not NAME=VALUE")
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def canonical_name(name: str, table: Mapping[str, Setting]) -> str:
    """Return the canonical name of a setting, given that name or Kafka's, with any dots, dashes and case.

    Raises:
        ConfigError: the setting is unknown; the message suggests the nearest name.
    """
    wanted = name.strip().lower().replace(".", "_").replace("-", "_")
    if wanted in table:
        return wanted
    aliases = {alias: setting.name for setting in table.values() for alias in setting.aliases}
    if wanted in aliases:
        return aliases[wanted]
    near = difflib.get_close_matches(wanted, [*table, *aliases], n=1)
    hint = f"did you mean {aliases.get(near[0], near[0])!r}?" if near else "the reference lists all settings"
    raise ConfigError(f"unknown setting {name!r}: {hint}")


def parsed(given: Mapping[str, Any], table: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the given settings by their canonical names, with parsed and validated values.

    Raises:
        ConfigError: a name is unknown or given twice, or a value is invalid.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        ours = canonical_name(name, table)
        if ours in values:
            raise ConfigError(f"setting {ours!r} is given twice, once as {name!r}")
        values[ours] = table[ours].parse(value)
    return values


# --- kinds ----------------------------------------------------------------------------


def _parse_int(setting: Setting, value: Any) -> int:
    if setting.unit == "ms" and isinstance(value, timedelta):
        if timedelta(0) < value < timedelta(milliseconds=1):
            raise setting.misfit(value)
        value = value // timedelta(milliseconds=1)
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        raise setting.misfit(value) from None
    if not isinstance(number, int) or isinstance(number, bool):
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
        wanted = _folded(setting.synonyms.get(value.strip(), value.strip()))
        for word in setting.choices:
            if wanted == _folded(word):
                return word
        if setting.takes_text is not None and setting.takes_text(value.strip()):
            return value.strip()
    elif setting.takes_function is not None and setting.takes_function(setting.name, value):
        return value
    raise setting.misfit(value)


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")


_PARSERS: Mapping[str, Callable[[Setting, Any], Any]] = {
    "int": _parse_int,
    "bool": _parse_bool,
    "text": _parse_text,
    "choice": _parse_choice,
}
