"""Settings from the environment and from a TOML file.

Each setting has one name in each place: ``linger_ms`` in a file, ``STREAMS_LINGER_MS`` in the environment.  Settings
given in the program or on the command line take precedence over the environment, and the environment over the file.
This module imports only other modules of ``core``.
"""

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Unpack, cast

from streams.core.errors import ConfigError
from streams.core.settings.config import SETTINGS, setting_name
from streams.core.settings.setting import SECRET_FORMS
from streams.core.settings.settings import ApplicationSettings, Settings

PREFIX: Final = "STREAMS_"
#: Loads the function that is given as MODULE:FUNCTION; the first argument says where it is given.
FunctionLoader = Callable[[str, str], Any]
#: What Kubernetes adds to the environment for a service whose name begins with "streams".
_OF_SERVICES: Final = re.compile(r"STREAMS_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_.+)?)?)")
_TABLE: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"\s*([^=#\[\]]+?)\s*=")


def load_settings(
    file: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    **settings: Unpack[Settings],
) -> ApplicationSettings:
    """Return the settings of an application from the arguments, the environment, or a TOML file, in this precedence.

    Pass the result to ``Streams(topology, **load_settings("app.toml"))``.  Functions are given as ``MODULE:FUNCTION``.

    Args:
        file: a TOML file whose keys are the names in the settings reference; default: none.
        environment: environment variables, of which ``STREAMS_...`` are read; default: those of this process.
        settings: settings that take precedence over all others.

    Raises:
        ConfigError: a setting is unknown or invalid; the message names the variable, or the file and line.
    """
    arguments = {setting_name(name): value for name, value in settings.items()}
    loaded = merged(
        {} if file is None else file_settings(file, imported),
        environment_settings(os.environ if environment is None else environment, imported),
        arguments,
    )
    return cast("ApplicationSettings", loaded)


def merged(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of all sources; later sources take precedence, also if they give a secret in another form.

    >>> merged({"sasl_password_file": "a", "linger_ms": 1}, {"sasl_password": "b"})
    {'linger_ms': 1, 'sasl_password': 'b'}
    """
    settings: dict[str, Any] = {}
    for source in sources:
        over = {name for spelling in source for name in _forms(spelling)}
        settings = {name: value for name, value in settings.items() if name not in over} | dict(source)
    return settings


def variable(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("linger_ms")
    'STREAMS_LINGER_MS'
    """
    return PREFIX + name.upper()


def secret_names() -> frozenset[str]:
    """Return the names of the settings that are secrets."""
    return frozenset(name for name, setting in SETTINGS.items() if setting.is_secret)


def environment_settings(environment: Mapping[str, str], load: FunctionLoader) -> dict[str, Any]:
    """Return the settings in the environment variables ``STREAMS_...``; empty variables are ignored.

    Raises:
        ConfigError: a variable does not name a setting, two variables name the same setting, or a value is invalid.
    """
    settings: dict[str, Any] = {}
    named: dict[str, str] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or not value or _OF_SERVICES.fullmatch(name):
            continue
        where = f"environment variable {name}"
        ours = _checked_name(name.removeprefix(PREFIX), where, variable)
        if ours in settings:
            raise ConfigError(f"{where}: {ours!r} is already given by {named[ours]}; leave one of them out")
        settings[ours] = _value(ours, value, where, load)
        named[ours] = name
    return settings


def file_settings(path: str | os.PathLike[str], load: FunctionLoader) -> dict[str, Any]:
    """Return the settings in a TOML file; the name of a table is a prefix of the setting names in it.

    Raises:
        ConfigError: the file cannot be read or is not TOML, a name is unknown or given twice, or a value is invalid.
    """
    # Imported here, because each program would pay for it.
    import tomllib

    try:
        text = Path(path).read_text(encoding="utf-8")
        read = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"settings file {os.fspath(path)}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        # Both a TOMLDecodeError, which has line and column, and a UnicodeDecodeError.
        raise ConfigError(f"settings file {os.fspath(path)}: is not TOML: {error}") from error
    settings: dict[str, Any] = {}
    for parts, value in _flat(read, ()):
        where = f"settings file {os.fspath(path)}, line {_line(text, parts)}"
        ours = _checked_name("_".join(parts), where, str)
        if ours in settings:
            raise ConfigError(f"{where}: {ours!r} is given twice; leave one of them out")
        settings[ours] = _value(ours, value, where, load)
    return settings


def imported(where: str, text: str) -> Any:
    """Return the function that is given as MODULE:FUNCTION.

    Raises:
        ConfigError: the module cannot be imported, or has no such function.
    """
    module_name, _, name = text.rpartition(":")
    try:
        function = getattr(importlib.import_module(module_name), name, None)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{where}: {text!r}: module {module_name!r} cannot be imported: {error}") from error
    if not callable(function):
        raise ConfigError(f"{where}: {text!r}: module {module_name!r} has no function {name!r}")
    return function


def _forms(name: str) -> tuple[str, ...]:
    """Return all names of a setting; a secret can be given as a value, a file or a command, each with its own name."""
    for secret in secret_names():
        names = tuple(secret + form for form in SECRET_FORMS)
        if name in names:
            return names
    return (name,)


def _checked_name(name: str, where: str, shown: Callable[[str], str]) -> str:
    try:
        return setting_name(name)
    except ConfigError as error:
        near = re.search(r"did you mean '(\w+)'", str(error))
        hint = f"did you mean {shown(near[1])}?" if near else "the reference lists all settings"
        raise ConfigError(f"{where}: unknown setting {name.lower()!r}: {hint}") from None


def _value(name: str, value: Any, where: str, load: FunctionLoader) -> Any:
    setting = SETTINGS[name]
    if isinstance(value, str) and ":" in value and setting.takes_function:
        value = load(where, value)
    try:
        return setting.parse(value)
    except ConfigError as error:
        # No cause: its traceback would show a secret.
        raise ConfigError(f"{where}: {error}") from None


def _flat(read: Mapping[str, Any], before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in read.items():
        parts = (*before, name)
        setting = SETTINGS.get("_".join(parts))
        if isinstance(value, dict) and not (setting is not None and setting.of_pairs):
            yield from _flat(value, parts)
        else:
            yield parts, value


def _line(text: str, parts: tuple[str, ...]) -> int:
    """Return the line number of a key, which ``tomllib`` does not report."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _parts(header[1])
        elif (key := _KEY.match(line)) and _is_prefix((*table, *_parts(key[1])), parts):
            return number
    return 1


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def _is_prefix(prefix: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    # The key of an inline table is the beginning of the names in it.
    return parts[: len(prefix)] == prefix
