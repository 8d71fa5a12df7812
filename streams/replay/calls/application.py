"""A topology on its way to other processes: pickled as the user gave it, built where it runs.

A function of the builder travels by value where it comes from a script, so that workers need
neither the script nor its folder.  Nothing that was built or run is ever pickled.
"""

import hashlib
import inspect
import io
import sys
import sysconfig
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dis import get_instructions
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from attrs import evolve, field, frozen

from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.records import TopicPartition
from streams.dsl.builder import TopologySource, build_topology
from streams.replay.calls.structs import is_struct, reduced_struct
from streams.replay.errors import ReplayError
from streams.runtime.plan import ApplicationPlan
from streams.topology.describe import describe
from streams.topology.graph import Topology

#: Where msgspec keeps what it knows of a class of the user's.
_DECODERS_OWN = "__msgspec_cache__"


@frozen
class Application:
    """What a worker needs to open the tasks of a topology; ``partitions`` has the counts of external topics."""

    topology: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    partitions: Mapping[str, int]
    #: Topology and settings as they were given, for calls in the process of the driver: a class that is unpickled
    #: beside itself would get the copies of its own methods.  They do not travel.
    given: tuple[TopologySource, Mapping[str, Any]] | None = field(default=None, repr=False, eq=False)
    #: Partitions of topics that only a record or a handler names, such as that of dead letters.
    default_partitions: int = 1

    @classmethod
    def of(
        cls,
        topology: TopologySource,
        settings: Mapping[str, Any],
        partitions: Mapping[str, int],
        default_partitions: int = 1,
    ) -> "Application":
        """Return an application as it travels.

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
    """Return a user's object as bytes that another process can read.

    Raises:
        ReplayError: something in it cannot travel.
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
    """Pickle with what a class has been given by others left out: decoders keep what they know of it there.

    With what the bodies of classes in functions take from their module, such as stores: cloudpickle only
    looks at what functions do.  With types instead of their names: a module in which these could be looked up
    is not there.
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, found: Any) -> Any:
            if isinstance(found, type) and _DECODERS_OWN in vars(found):
                delattr(found, _DECODERS_OWN)  # It is made again when it is next needed.
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


def _types_of(found: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, those that are text as what they name."""
    declared: dict[str, Any] = found.__annotations__
    try:
        known = typing.get_type_hints(found, include_extras=True) if declared else {}
    except (NameError, TypeError):
        return declared  # Of names that only type checkers see nobody asks.
    return {name: known.get(name, kind) for name, kind in declared.items()}


def _names_of_bodies(code: CodeType) -> Iterator[str]:
    """Yield the names that bodies of classes within a function look up, its parameters or module's among them."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # Functions keep their variables in slots; bodies of classes look all of theirs up by name.
            if not inner.co_flags & inspect.CO_OPTIMIZED:
                for step in get_instructions(inner):
                    if step.opname == "LOAD_NAME":
                        yield str(step.argval)
            yield from _names_of_bodies(inner)


def fingerprint(topology: Topology) -> str:
    """Return a digest of what a topology reads, writes and keeps; functions do not count.

    Nor does whether a table keeps its source topic as changelog, which depends on who writes that topic.
    """
    described = describe(evolve(topology, source_changelogs={}))
    return hashlib.blake2b(str(described).encode(), digest_size=8).hexdigest()


def source_digest(topology: TopologySource) -> str:
    """Return a digest of the user's code: of the module that has the topology, and those beside it."""
    state = hashlib.blake2b(digest_size=8)
    for module in _modules_beside(topology):
        try:
            state.update(inspect.getsource(module).encode())
        except (OSError, TypeError):
            continue  # Typed at a prompt: only its description can tell it apart.
    return state.hexdigest()


@contextmanager
def _by_value(thing: object) -> Iterator[None]:
    """Have cloudpickle take what the user's own modules define by value."""
    import cloudpickle

    # Settings are a dict of plain values and of the user's functions.
    parts = thing.values() if isinstance(thing, dict) else (thing,)
    found = {module.__name__: module for part in parts for module in _modules_beside(part)}
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


def _modules_beside(thing: object) -> list[ModuleType]:
    """Return the module that defines a function, and the loaded ones of its folder; none of installed packages."""
    module = inspect.getmodule(thing)
    file = getattr(module, "__file__", None)
    if module is None or file is None or _is_installed(file):
        return [] if module is None or module.__name__ != "__main__" else [module]
    folder = _folder_of(file)
    beside = [
        other
        for other in list(sys.modules.values())
        if isinstance(other, ModuleType)
        and (origin := getattr(other, "__file__", None)) is not None
        and _folder_of(origin) == folder
        and not _is_installed(origin)
    ]
    return sorted({id(found): found for found in (module, *beside)}.values(), key=lambda found: found.__name__)


@cache
def _folder_of(file: str) -> str:
    # A replay asks for every loaded module, and many times.
    return str(Path(file).resolve().parent)


@cache
def _is_installed(file: str) -> bool:
    resolved = str(Path(file).resolve())
    own = str(Path(__file__).resolve().parent.parent)
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(resolved.startswith(f"{folder}/") for folder in {own, *libraries})


def logical_of(plan: ApplicationPlan, partition: TopicPartition) -> TopicPartition:
    """Return the partition of a topic of the topology that a lane is a part of; itself where it is no lane."""
    for topic in plan.lanes:
        if plan.physical_topic(topic) == partition.topic:
            return TopicPartition(topic, partition.partition // plan.lane_count(topic))
    return partition
