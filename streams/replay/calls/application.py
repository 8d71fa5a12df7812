"""Serialization of a topology for other processes: it is pickled as the user gave it, and built by the worker.

Functions defined in a script are pickled by value, so workers need neither the script nor its
folder.  Built topologies and running tasks are never pickled.
"""

import hashlib
import inspect
import io
import sys
import sysconfig
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dis import get_instructions
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from attrs import evolve, field, frozen
from msgspec import Meta

from streams.core.clock import Clock
from streams.core.settings.config import StreamsConfig
from streams.dsl import TopologySource, build_topology
from streams.replay.calls.structs import is_struct, reduced_struct
from streams.replay.errors import ReplayError
from streams.runtime import ApplicationPlan
from streams.topology import Topology, describe

#: Attribute of a user class in which msgspec caches its decoder.
_DECODERS_OWN = "__msgspec_cache__"
_META_FIELDS = tuple(inspect.signature(Meta).parameters)


@frozen
class Application:
    """A pickled topology and its settings; ``partitions`` has the partition counts of external topics."""

    topology: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    partitions: Mapping[str, int]
    #: Topology and settings as given, for calls in the driver's process: unpickling a class in the process that
    #: defined it would replace methods of the original.  Not pickled.
    given: tuple[TopologySource, Mapping[str, Any]] | None = field(default=None, repr=False, eq=False)
    #: Partition count of topics that only a record or a handler determines, such as the dead letter queue topic.
    default_partitions: int = 1

    @classmethod
    def of(
        cls,
        topology: TopologySource,
        settings: Mapping[str, Any],
        partitions: Mapping[str, int],
        default_partitions: int = 1,
    ) -> "Application":
        """Return the pickled application of a topology.

        Raises:
            ReplayError: the topology or a setting cannot be pickled.
        """
        return cls(
            pickled(topology, "the topology"),
            pickled(dict(settings), "the settings"),
            dict(partitions),
            (topology, dict(settings)),
            default_partitions,
        )

    def __reduce__(self) -> Any:
        return Application, (self.topology, self.settings, self.partitions, None, self.default_partitions)

    def plan(self, clock: Clock) -> ApplicationPlan:
        """Build the topology and plan its tasks."""
        import cloudpickle

        source, settings = self.given or (cloudpickle.loads(self.topology), cloudpickle.loads(self.settings))
        config = StreamsConfig.of(**settings)
        return ApplicationPlan.make(build_topology(source, config), config, clock, self.partitions, has_lanes=True)


def pickled(thing: object, what: str) -> bytes:
    """Pickle an object for another process; ``what`` names it in error messages.

    Raises:
        ReplayError: a part of the object cannot be pickled.
    """
    with _by_value(thing):
        try:
            return _dumped(thing)
        except Exception as error:
            raise ReplayError(
                f"{what} cannot be sent to other processes: {type(error).__name__}: {error}; make connections, "
                "locks and open files inside the functions that use them"
            ) from error


def _dumped(thing: object) -> bytes:
    """Pickle an object with cloudpickle, with five changes.

    - Decoders that msgspec caches on classes are left out.
    - Globals that class bodies within functions use are included; cloudpickle only follows function code.
    - Annotations are sent as types, since the module that resolves their names is missing in the worker.
    - Constraints of types (``msgspec.Meta``), which cannot be pickled, are sent as their values.
    - Code keeps the name of its file, so that errors name the line of user code; cloudpickle 3.1.3 replaces it.
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, found: Any) -> Any:
            if isinstance(found, type) and _DECODERS_OWN in vars(found):
                delattr(found, _DECODERS_OWN)  # msgspec creates it again on demand.
            if isinstance(found, CodeType):
                make, arguments = self.dispatch_table[CodeType](found)[:2]
                return _code_of, (found.co_filename, make, arguments)
            if isinstance(found, Meta):
                return _meta_of, ({name: getattr(found, name) for name in _META_FIELDS},)
            reduced = super().reducer_override(found)
            if is_struct(found) and isinstance(reduced, tuple):
                return reduced_struct(found)
            if not isinstance(reduced, tuple) or len(reduced) != 6:
                return reduced
            if isinstance(found, FunctionType):
                state = reduced[2][1]
                state["__annotations__"] = _types_of(found)
                for name in _names_of_bodies(found.__code__):
                    if name in found.__globals__:
                        state["__globals__"].setdefault(name, found.__globals__[name])
            elif isinstance(found, type) and "__annotations__" in vars(found):
                reduced[2][0]["__annotations__"] = _types_of(found)
            return reduced

    stream = io.BytesIO()
    Pickler(stream).dump(thing)
    return stream.getvalue()


def _meta_of(values: Mapping[str, Any]) -> Meta:
    """Return the constraints of a type that have these values."""
    return Meta(**values)


def _code_of(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    """Return the code object that ``make`` creates, as code of a file."""
    return make(*arguments).replace(co_filename=file)


def _types_of(found: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, in which text has been resolved to types."""
    declared: dict[str, Any] = found.__annotations__
    try:
        known = typing.get_type_hints(found, include_extras=True) if declared else {}
    except (NameError, TypeError):
        return declared  # Imported for type checkers only: not needed at run time.
    return {name: known.get(name, kind) for name, kind in declared.items()}


def _names_of_bodies(code: CodeType) -> Iterator[str]:
    """Yield the names of parameters or globals of a function that class bodies within the function use."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # Functions access variables by slot; class bodies look up all names.
            if not inner.co_flags & inspect.CO_OPTIMIZED:
                for step in get_instructions(inner):
                    if step.opname == "LOAD_NAME":
                        yield str(step.argval)
            yield from _names_of_bodies(inner)


def fingerprint(topology: Topology) -> str:
    """Return a digest of the topics and stores of a topology; function code is not included.

    Whether a table uses its source topic as changelog is not included either, since this depends on the writers of
    the topic.
    """
    described = describe(evolve(topology, source_changelogs={}))
    return hashlib.blake2b(str(described).encode(), digest_size=8).hexdigest()


def source_digest(topology: TopologySource) -> str:
    """Return a digest of the user code: the module of the topology and the loaded modules in its folder."""
    state = hashlib.blake2b(digest_size=8)
    for module in _modules_around(topology):
        try:
            state.update(inspect.getsource(module).encode())
        except (OSError, TypeError):
            continue  # Interactive code has no source; the description of the topology is used instead.
    return state.hexdigest()


@contextmanager
def _by_value(thing: object) -> Iterator[None]:
    """Within the ``with`` block, make cloudpickle pickle definitions of the user's own modules by value."""
    import cloudpickle

    # Settings are a dict of plain values and the user's functions.
    parts = thing.values() if isinstance(thing, dict) else (thing,)
    found = {module.__name__: module for part in parts for module in _modules_around(part)}
    modules = [module for name, module in sorted(found.items()) if name != "__main__"]
    known = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in known]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_around(thing: object) -> list[ModuleType]:
    """Return the module that defines a function and the loaded modules in its folder, without installed packages."""
    module = inspect.getmodule(thing)
    file = getattr(module, "__file__", None)
    if module is None or file is None or _is_installed(file):
        return [] if module is None or module.__name__ != "__main__" else [module]
    folder = _folder_of(file)
    siblings = [
        other
        for other in list(sys.modules.values())
        if isinstance(other, ModuleType)
        and (origin := getattr(other, "__file__", None)) is not None
        and _folder_of(origin) == folder
        and not _is_installed(origin)
    ]
    return sorted({id(found): found for found in (module, *siblings)}.values(), key=lambda found: found.__name__)


@cache
def _folder_of(file: str) -> str:
    # A replay calls this often, for every loaded module.
    return str(Path(file).resolve().parent)


@cache
def _is_installed(file: str) -> bool:
    resolved = str(Path(file).resolve())
    own = str(Path(__file__).resolve().parent.parent)
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(resolved.startswith(f"{folder}/") for folder in {own, *libraries})
