"""What a user asks of a replay: a topology, its inputs, and a ``Plan`` that says how it runs."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from attrs import Attribute, evolve, field, fields, frozen, validators

from streams.core.errors import ConfigError
from streams.core.metrics import USUAL_LIMIT
from streams.core.settings.settings import Settings
from streams.core.topic import Topic, TopicLike, topic_name
from streams.core.user_code import refuse_unawaited
from streams.dsl import TopologySource
from streams.replay.calls.progress import Listener
from streams.replay.calls.work import Options
from streams.replay.history.slicing import Slicing
from streams.runtime import DropLimit

#: Default number of slices whose states are kept: those of a week of daily runs.
KEPT_STATES = 7
#: The executor that a field belongs to.
_OWNERS = {"processes": "local", "spark": "spark", "master": "spark", "conf": "spark"}


#: The history of each source topic, by topic or name.
Inputs: TypeAlias = Mapping[Topic[Any, Any], Any] | Mapping[str, Any] | Mapping[TopicLike, Any]


class Keywords(Settings, total=False):
    """The fields of a ``Plan`` that are keywords of ``replay`` and ``explain``, too, and the settings."""

    application_id: str | None
    executor: Literal["spark", "local"]
    spark: Any
    processes: int | None
    partitions: int | None
    slices: str | int | timedelta | None
    until: Any
    order: Literal["event_time", "as_given"] | None
    directory: str | os.PathLike[str] | None
    resume: bool
    snapshot: str | os.PathLike[str] | None
    state_from: str | os.PathLike[str] | None
    wall_clock: Literal["error", "skip", "append_time"]
    final_flush: bool
    max_dropped: str | int | None


def _slicing(value: Slicing | str | int | timedelta | None) -> Slicing | None:
    return None if value is None else Slicing.of(value)


def _one_of(*choices: str | None) -> Any:
    def check(_: Any, attribute: "Attribute[Any]", value: object) -> None:
        if value not in choices:
            *others, last = (repr(choice) for choice in choices if choice is not None)
            raise ConfigError(f"{attribute.name} {value!r}: give {', '.join(others)} or {last}")

    return check


def _check_number(_: Any, attribute: "Attribute[Any]", value: object) -> None:
    if type(value) is not int or value < 1:
        raise ConfigError(f"{attribute.name} {value!r}: give a whole number from 1 on")


def _check_limit(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
    DropLimit.of(value)


def _check_listener(_: Any, attribute: "Attribute[Any]", value: object) -> None:
    refuse_unawaited(value, "progress of a replay", error=ConfigError)


_NUMBER = validators.optional(_check_number)


@frozen(kw_only=True)
class Plan:
    """How a replay runs: on what, over which part of history, with which state, and in which folder.

    ``replay``, ``explain`` and ``why`` take the same plan, and ``streams replay`` makes one of its arguments.

    Raises:
        ConfigError: a value is not permitted.
    """

    executor: Literal["spark", "local"] = field(default="spark", validator=_one_of("spark", "local"))
    """What runs the tasks: "spark", or "local" for processes of this machine."""
    spark: Any = None
    """The Spark session, classic or Connect; by default the active one, or a new one."""
    master: str | None = None
    """The Spark master of a new session (default ``local[*]``), or the address of a Connect server."""
    conf: Mapping[str, str] | None = None
    """The settings of a new Spark session."""
    processes: int | None = field(default=None, validator=_NUMBER)
    """The number of processes of the executor "local" (default: one per core)."""
    partitions: int | None = field(default=None, validator=_NUMBER)
    """The partition count of topics that do not declare one (default 1)."""
    slices: Slicing | None = field(default=None, converter=_slicing)
    """How history is divided: a span of event time ("1d"), a number of slices (up to 1000), or a larger number, which
    is the maximum number of records per slice."""
    since: Any = None
    """The first event time of rows of tables, which their source selects: a datetime, milliseconds, or text."""
    until: Any = None
    """Where the replay ends: a datetime, epoch milliseconds, ISO 8601 text, or offsets by topic and partition."""
    order: Literal["event_time", "as_given"] | None = field(
        default=None, validator=_one_of("event_time", "as_given", None)
    )
    """The order of records from files in each partition: "event_time" sorts them by (event time, row), and "as_given"
    keeps the order of files and rows.  By default, the files of a folder are sorted, and others are not.  Archives and
    topics always keep the order of their offsets."""
    wall_clock: Literal["error", "skip", "append_time"] = field(
        default="error", validator=_one_of("error", "skip", "append_time")
    )
    """How wall-clock time, which history does not have, is treated: "error" rejects any use of it, "skip" never fires
    wall-clock punctuations and ignores ``idle_close``, and "append_time" advances the clock to the append times of the
    records."""
    final_flush: bool = False
    """Whether open windows are closed at the end."""
    store: Literal["rocksdb", "in_memory"] | None = field(default=None, validator=_one_of("rocksdb", "in_memory", None))
    """Where stores are while tasks run (default: in memory if the setting ``default_store`` says so, or RocksDB)."""
    directory: str | os.PathLike[str] | None = None
    """The folder for all files of the replay; by default a folder in ``snapshot``, or a temporary one."""
    keep: bool = False
    """Whether temporary files, and the Spark session of the replay, stay until this process exits.  Otherwise outputs
    can be read until the result is closed."""
    resume: bool = False
    """Whether the replay continues from the files in its folder."""
    repair: bool = False
    """Whether rows that are older than rows of earlier runs (late rows) are sorted into the history, and the affected
    results are computed again, so that the result equals that of one replay over all rows; only with ``resume``.  A
    repair continues from one of the states of the last ``keep_states`` slices, or else from the start."""
    keep_states: int = field(default=KEPT_STATES, validator=_check_number)
    """The number of slices whose states are kept for a repair; a resumed replay has one slice for each run, or those of
    ``slices``."""
    state_from: str | os.PathLike[str] | None = None
    """The folder of a snapshot to continue from."""
    snapshot: str | os.PathLike[str] | None = None
    """The folder to which the final state and the outputs are saved, to go live from."""
    max_dropped: str | int | None = field(default=None, validator=validators.optional(_check_limit))
    """How many late records one node may drop: a share of the records that its tasks read ("1%") or a number; by
    default, a share of more than 1 % logs a warning."""
    progress: Listener | None = field(default=None, validator=_check_listener)
    """A function that is called with the ``ReplayProgress`` while the replay runs."""

    @property
    def limit(self) -> DropLimit:
        """The limit on late records, which raises an error only if it was set."""
        return DropLimit.of(USUAL_LIMIT if self.max_dropped is None else self.max_dropped)

    def check(self) -> None:
        """Check that the fields fit each other: what belongs to another executor, or to a resumed replay.

        Raises:
            ConfigError: two fields contradict each other.
        """
        for name, owner in _OWNERS.items():
            if getattr(self, name) is not None and owner != self.executor:
                raise ConfigError(
                    f"{name} is of executor={owner!r}, but executor={self.executor!r}: leave it out, or give that"
                )
        if self.repair and not self.resume:
            raise ConfigError("repair continues the replay of earlier runs in a folder; resume it, too")
        if self.snapshot is not None and self.final_flush:
            raise ConfigError(
                "snapshot and final_flush exclude each other: windows that were flushed at the end cannot continue live"
            )


@frozen
class Request:
    """The arguments of a replay: inputs by the name of their topic, settings with the application ID, and the plan."""

    topology: TopologySource = field(repr=False)
    inputs: Mapping[str, Any]
    settings: Mapping[str, Any] = field(factory=dict)
    plan: Plan = field(factory=Plan)

    @classmethod
    def of(cls, topology: TopologySource, inputs: Inputs, plan: Plan | None, keywords: Keywords) -> "Request":
        """Return the request of a call: ``keywords`` are fields of the plan, which they replace, and settings.

        Raises:
            ConfigError: the plan is invalid, or a keyword is a field that only a plan has.
        """
        settings: dict[str, Any] = {**keywords}
        names = {field.name for field in fields(Plan)}
        changes = {name: settings.pop(name) for name in sorted(names & settings.keys())}
        for name in changes.keys() - Keywords.__annotations__.keys():
            raise ConfigError(f"{name} is a field of the plan: give plan=Plan({name}=...)")
        plan = evolve(plan or Plan(), **changes)
        plan.check()
        settings["application_id"] = settings.get("application_id") or application_id_of(topology)
        named = {topic_name(topic, "an input of a replay"): value for topic, value in inputs.items()}
        return cls(topology, named, settings, plan)

    @property
    def options(self) -> Options:
        """What tasks need of the plan."""
        usual = "in_memory" if self.settings.get("default_store") == "in_memory" else "rocksdb"
        return Options(self.plan.wall_clock, self.plan.final_flush, self.plan.store or usual)


def application_id_of(topology: Any) -> str:
    """Return the default application ID of a topology: the name of the script that defines it."""
    import inspect
    from pathlib import Path

    module = inspect.getmodule(topology)
    file = getattr(module, "__file__", None)
    name = "streams" if file is None else Path(file).stem
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name).strip(".-")
