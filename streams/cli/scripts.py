"""Loading of a topology from ``SCRIPT[:FUNCTION]``.

The script runs as a module, not as ``__main__``, with its folder first on the module path, so that
classes of the script can be found by name.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from streams.cli.mistakes import ScriptError, frame_in
from streams.core.errors import StreamsError
from streams.core.nearest import suggestion
from streams.core.settings.config import StreamsConfig
from streams.core.user_code import last_frame_outside
from streams.dsl import TopologySource, build_topology
from streams.topology import Topology

#: Default name of the function that builds the topology.
DEFAULT_FUNCTION = "topology"
#: Mark of the module of a script that was run for a function in the settings.
_FOR_A_SETTING = "run for a function in the settings"


@frozen
class Script:
    """A script and the name of one of its functions."""

    path: Path
    function: str = DEFAULT_FUNCTION

    @classmethod
    def parse(cls, text: str) -> "Script":
        """Parse ``SCRIPT[:FUNCTION]``; the name of an existing file may contain a colon."""
        path, colon, function = text.rpartition(":")
        if colon and function.isidentifier() and not Path(text).exists():
            return cls(Path(path), function)
        return cls(Path(text))

    @property
    def application_id(self) -> str:
        """The default application ID: the name of the script, without characters that Kafka does not allow."""
        name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in self.path.stem)
        return name.strip(".-") or "streams"

    def settings(self, settings: Mapping[str, Any], application_id: str | None) -> dict[str, Any]:
        """Return settings with the application id: the one that is asked for, theirs, or the name of the script."""
        return {**settings, "application_id": application_id or settings.get("application_id") or self.application_id}


def load(script: Script, config: StreamsConfig) -> Topology:
    """Run a script and build its topology.

    Raises:
        ScriptError: the script cannot be loaded or has no such function, or the topology cannot be built.
    """
    return built(script, source(script), config)


def source(script: Script) -> TopologySource:
    """Run a script and return the function that builds its topology, without calling it.

    Raises:
        ScriptError: the script cannot be loaded, or has no such function.
    """
    module = _preloaded(script.path.resolve()) or _run(script.path)
    definition: TopologySource | None = getattr(module, script.function, None)
    if definition is None:
        raise ScriptError(_no_function(module, script))
    if not isinstance(definition, Topology) and not callable(definition):
        raise ScriptError(
            f"{script.path}: {script.function!r} is of type {type(definition).__name__}; "
            "a topology is a function of the builder, or a built Topology"
        )
    return definition


def function_named(script: Script, option: str, text: str) -> Any:
    """Return the function named by MODULE:FUNCTION (in the folder of the script) or :FUNCTION (in the script).

    Raises:
        ScriptError: the module or function does not exist, or the module fails to load.
    """
    module_name, _, name = text.rpartition(":")
    resolved = script.path.resolve()
    if module_name in ("", script.path.stem):
        module = module_of(script)
    else:
        _put_first(resolved)
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            raise ScriptError(f"{option}={text}: module {module_name!r} cannot be loaded: {_named(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ScriptError(f"{option}={text}: {module.__name__!r} has no function {name!r}")
    return function


def module_of(script: Script) -> ModuleType:
    """Return the module of a script, which is run the first time only.

    Raises:
        ScriptError: the script does not exist, or fails.
    """
    module = _preloaded(script.path.resolve()) or _run(script.path)
    if module.__spec__ is not None:
        module.__spec__.loader_state = _FOR_A_SETTING
    return module


def built(script: Script, definition: TopologySource, config: StreamsConfig) -> Topology:
    """Build the topology of a script.

    Raises:
        ScriptError: the topology cannot be built; the message includes the line of the script.
    """
    try:
        return build_topology(definition, config)
    except StreamsError as error:
        raise ScriptError(f"{_place(error, script.path)}: the topology cannot be built: {error}") from error
    except (Exception, SystemExit) as error:
        raise ScriptError(
            f"{_place(error, script.path)}: {script.function}() failed: {_named(error)}; --debug shows the traceback"
        ) from error


def _preloaded(resolved: Path) -> ModuleType | None:
    """Return the module of a script that was already run to find a function of the settings, else None.

    The topology is built from the same module, so that the script runs once.  Two versions that are compared run
    their scripts separately, even if both are the same file.
    """
    for name in (resolved.stem, f"{resolved.stem}_script"):
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.loader_state == _FOR_A_SETTING and spec.origin == str(resolved):
            return module
    return None


def _run(path: Path) -> ModuleType:
    """Run a script as a module.

    Raises:
        ScriptError: the script does not exist, or fails.
    """
    if path.is_dir():
        raise ScriptError(f"{path}: is a directory; give the script that declares the topology")
    if not path.is_file():
        from streams.files import nearby

        raise ScriptError(f"{path}: there is no such script" + nearby(path, "*.py"))
    resolved = path.resolve()
    _put_first(resolved)
    name = _module_name(resolved)
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ScriptError(f"{path}: is not a Python script; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and serdes look up the module of a class by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ScriptError(_syntax(path, resolved, error)) from error
    except (Exception, SystemExit) as error:
        what = f"it ended itself with status {error.code}" if isinstance(error, SystemExit) else _named(error)
        raise ScriptError(f"{_place(error, path)}: the script failed while it was loaded: {what}") from error
    return module


def _put_first(script: Path) -> None:
    """Put the folder of a script on the module path."""
    if str(script.parent) not in sys.path:
        sys.path.insert(0, str(script.parent))


def _module_name(path: Path) -> str:
    """Return the file name of the script as its module name, or another name if this one is taken."""
    try:
        taken = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError, AttributeError):
        taken = None
    is_other = taken is not None and (taken.origin is None or Path(taken.origin).resolve() != path)
    return f"{path.stem}_script" if is_other or path.stem == "__main__" else path.stem


def _named(error: BaseException) -> str:
    hint = ""
    if isinstance(error, AttributeError) and error.name:
        # Python tells the nearest name only below a traceback.
        names = (name for name in dir(error.obj) if not name.startswith("_"))
        hint = suggestion(error.name, names, "; did you mean {}?")
    elif isinstance(error, ImportError) and "relative import" in str(error):
        hint = (
            "; a script is loaded by itself and not as part of its package: import the topology into a script beside it"
        )
    return f"{type(error).__name__}: {error}{hint}"


def _syntax(path: Path, resolved: Path, error: SyntaxError) -> str:
    file = path if error.filename == str(resolved) else error.filename
    text = (error.text or "").rstrip()
    message = f"{file}:{error.lineno}: the script is not Python: {error.msg}"
    if not text:
        return message
    column = max(0, (error.offset or 1) - 1 - (len(text) - len(text.lstrip())))
    return f"{message}\n    {text.lstrip()}\n    {' ' * column}^"


def _place(error: BaseException, path: Path) -> str:
    """Return the file and line of the user code that caused an error."""
    resolved = str(path.resolve())
    frame = frame_in(error.__traceback__, resolved) or last_frame_outside(error.__traceback__)
    if frame is None:
        return str(path)
    return f"{path if frame.filename == resolved else frame.filename}:{frame.lineno}"


def _no_function(module: ModuleType, script: Script) -> str:
    own: list[str] = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and _is_candidate(value, module.__name__)
    ]
    meant = suggestion(script.function, own, "; did you mean {}?")
    defined = f" It defines {', '.join(own)}." if own else ""
    return (
        f"{script.path}: there is no function {script.function!r}{meant or '.'}{defined} "
        f"Name the function that takes the builder: {script.path}:FUNCTION"
    )


def _is_candidate(value: Any, module: str) -> bool:
    is_own_function = callable(value) and not isinstance(value, type) and getattr(value, "__module__", None) == module
    return is_own_function or isinstance(value, Topology)
