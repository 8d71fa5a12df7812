"""How far the tasks upstream of repartition topics are: what a reader of their lanes may rely on.

A task promises by a mark that nothing that it writes from now on has a place below the place of the mark.  The threads
of an instance share one board, which has the newest mark of each task of the application: those of the instance's own
tasks at once, those of others from the progress topic (see ``progress_records``).

An old place stays true, since a task has written everything below it for good.  That a task is at its end does not
stay true: its input may have grown while nobody read it.  So the board forgets it when the task is closed, when the
group has a newer generation, and when this instance asks all others anew, until the owner of the task says it again.
The module is pure and imports only ``core`` from outside ``runtime``.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP

#: Generation of a thread that is not a member of the group.
NO_GENERATION = -1


class MarkState(IntEnum):
    """What a task does; the numbers are those of the progress topic."""

    #: It has input to process, or waits for some.
    BEHIND = 0
    #: It has processed all its input, and so have the tasks upstream of it.
    AT_END = 1
    #: Its stores are being restored.
    RESTORING = 2

    @property
    def is_awaited(self) -> bool:
        """Whether readers wait for records of the task."""
        return self is not MarkState.AT_END


class TaskMark(NamedTuple):
    """What a task says: the lowest place that it may still write (epoch milliseconds, -1: any), and its state.

    ``active`` is a number that changes while the task is active and its place stays: while it restores its stores,
    reads records whose order is not certain yet, processes records of earlier places, or waits for such a task.
    """

    place_ms: int
    state: MarkState
    active: int = 0

    def says_more_than(self, other: "TaskMark | None") -> bool:
        """Return whether readers learn something from this mark after ``other``: the place of an end tells nothing."""
        if other is None or self.state is not other.state:
            return True
        return self.state.is_awaited and self != other


class LaneProgress(NamedTuple):
    """What a reader may rely on for a lane; a lane without it is unknown, and its records may have any place.

    ``state`` is BEHIND if the task's last state does not count any more.
    """

    place_ms: int
    state: MarkState
    #: Monotonic time of the last change of what the task has said, in milliseconds.
    moved_ms: int


#: The progress of a task that has said nothing yet.
UNKNOWN = LaneProgress(NO_TIMESTAMP, MarkState.BEHIND, -1)


class Hold(NamedTuple):
    """A task for which others wait, by its lane, and since when it has not moved, in monotonic milliseconds."""

    lane: int
    since_ms: int

    @classmethod
    def of(cls, lane: int, progress: LaneProgress, since_ms: int) -> "Hold":
        """Return the hold by a task for those that wait since ``since_ms``, for whichever task."""
        return cls(lane, max(since_ms, progress.moved_ms))

    def is_over(self, patience_ms: int, now_ms: int) -> bool:
        """Whether the task has not moved for the patience of those that wait."""
        return now_ms - self.since_ms >= patience_ms


@define(eq=False)
class _Entry:
    """The newest mark of one task."""

    generation: int
    mark: TaskMark
    #: The highest place of all marks; a new owner that repeats records says a lower one.
    place_ms: int
    moved_ms: int
    #: Whether the task is in this instance.
    is_own: bool
    #: Whether the state was said since this instance has asked for it.
    is_current: bool

    def shown(self, generation: int) -> LaneProgress:
        """Return what counts of the mark in a generation of the group."""
        state = self.mark.state
        if not state.is_awaited and not (self.is_current and self.generation >= generation):
            state = MarkState.BEHIND
        return LaneProgress(self.place_ms, state, self.moved_ms)


@define(eq=False)
class ProgressBoard:
    """The newest marks of all tasks of an application, shared by the threads of one instance; thread-safe.

    Lanes are numbered as by ``lane_of``.
    """

    _lock: threading.Lock = field(factory=threading.Lock)
    _entries: dict[int, _Entry] = field(factory=dict)
    #: The generation of the group as each thread of this instance knows it.
    _own: dict[str, int] = field(factory=dict)
    #: The newest of these.  What other instances say of it is not believed: a broker that has lost the group begins
    #: again at 1, and a thread that was stopped meanwhile still speaks of the old generations.
    _generation: int = NO_GENERATION
    #: The threads, of all instances, that have said something in this generation or a later one: the last one of each.
    _members: dict[str, int] = field(factory=dict)
    #: Counts changes of what readers see, so that a reader knows whether to look again.
    _version: int = 0
    #: Counts the questions of other instances, each of which every thread answers with all its marks.
    _asked: int = 0
    #: Whether states of other instances were forgotten that they have no reason to say again, so that they are asked.
    must_ask: bool = False
    #: Whether the last question of this instance has come back, so that what follows it in the topic is newer.
    _is_answered: bool = False
    #: Wakes a thread of this instance, by its name.
    _wakes: dict[str, Callable[[], None]] = field(factory=dict)
    #: Threads that wait for a change.
    _waiting: set[str] = field(factory=set)
    #: The sub-topologies that have unprocessed input, by thread of this instance.
    _busy: dict[str, frozenset[int]] = field(factory=dict)

    # --- readers --------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        return self._version

    def marks(self, lanes: Iterable[int]) -> dict[int, LaneProgress]:
        """Return the progress of lanes; lanes whose tasks have said nothing yet are left out."""
        with self._lock:
            entries, generation = self._entries, self._generation
            return {lane: entries[lane].shown(generation) for lane in lanes if lane in entries}

    def wait_from(self, thread: str, version: int) -> bool:
        """Wake a thread at the next change; return False if the board has changed since ``version`` already."""
        with self._lock:
            if version == self._version:
                self._waiting.add(thread)
                return True
            return False

    def listen(self, thread: str, wake: Callable[[], None]) -> None:
        """Add a thread of this instance; ``wake`` ends its sleep, and may be called by any thread."""
        with self._lock:
            self._wakes[thread] = wake

    def leave(self, thread: str) -> None:
        """Remove a thread that has ended."""
        with self._lock:
            self._wakes.pop(thread, None)
            self._waiting.discard(thread)
            self._busy.pop(thread, None)
            self._own.pop(thread, None)

    # --- threads of this instance ---------------------------------------------------------

    @property
    def asked(self) -> int:
        """A number that grows whenever another instance has asked for the marks of all tasks."""
        return self._asked

    @property
    def member_count(self) -> int:
        """The number of threads of the application that have said something in this generation of the group."""
        return len(self._members)

    def note_busy(self, thread: str, busy: Iterable[int]) -> frozenset[int]:
        """Set the sub-topologies of a thread that have unprocessed input, and return those of all threads.

        Topics behind them are not idle, because records may follow.  Marks say so of topics that are read in step, also
        for other instances; this covers the others.
        """
        self._busy[thread] = frozenset(busy)
        return frozenset().union(*list(self._busy.values()))

    def note(self, thread: str, generation: int, marks: Mapping[int, TaskMark], now_ms: int) -> None:
        """Add marks of a thread of this instance; ``now_ms`` is monotonic, here and below."""
        self._add(thread, generation, marks, now_ms, is_own=True)

    def close(self, lane: int) -> None:
        """Forget the state of a task that its thread has closed; its place stays true."""
        with self._lock:
            before = self._version
            entry = self._entries.get(lane)
            if entry is not None and entry.is_own:
                entry.is_own = entry.is_current = False
                self._version += 1
            wakes = self._woken(before)
        _call(wakes)

    # --- the reader of the progress topic -------------------------------------------------

    def ask(self) -> None:
        """Forget the states of all tasks of other instances, because a question to them is about to be written."""
        with self._lock:
            self._is_answered = False
            self.must_ask = False
            for entry in self._entries.values():
                entry.is_current = entry.is_own
            self._version += 1

    def hear(self) -> None:
        """Let the states that follow in the topic count: the question of this instance has been read back."""
        with self._lock:
            self._is_answered = True

    def answer(self) -> None:
        """Let the threads of this instance publish all their marks, because another instance has asked."""
        with self._lock:
            self._asked += 1
            wakes = list(self._wakes.values())
        _call(wakes)

    def add(self, member: str, generation: int, marks: Mapping[int, TaskMark], now_ms: int) -> None:
        """Add marks from the progress topic; those of the instance's own threads are on the board already."""
        if member not in self._wakes:
            self._add(member, generation, marks, now_ms, is_own=False)

    # --- inside ---------------------------------------------------------------------------

    def _add(self, member: str, generation: int, marks: Mapping[int, TaskMark], now_ms: int, *, is_own: bool) -> None:
        with self._lock:
            before = self._version
            if is_own:
                self._own[member] = generation
                self._enter(max(self._own.values()))
            self._members[member] = generation
            is_current = is_own or self._is_answered
            for lane, mark in marks.items():
                self._put(lane, _Entry(generation, mark, mark.place_ms, now_ms, is_own, is_current))
            wakes = self._woken(before)
        _call(wakes)

    def _enter(self, generation: int) -> None:
        """Go to a generation of the group, which is lower than the last one if the group has begun again."""
        if generation == self._generation:
            return
        # What was said before, by tasks that may have moved, is to be said again.
        self._generation = generation
        self._members = {member: own for member, own in self._members.items() if own >= generation}
        self._version += 1
        for entry in self._entries.values():
            if entry.generation > generation:
                entry.generation = NO_GENERATION
                # It may be that this instance is late, and that the task has said it in the generation that follows.
                self.must_ask = self.must_ask or not entry.is_own

    def _put(self, lane: int, new: _Entry) -> None:
        old = self._entries.get(lane)
        if old is not None:
            if new.generation < old.generation:
                # A thread that does not know yet that the task has moved.
                return
            new.place_ms = max(old.place_ms, new.place_ms)
            if new.mark == old.mark:
                new.moved_ms = old.moved_ms
        if old is None or new.shown(self._generation) != old.shown(self._generation):
            self._version += 1
        self._entries[lane] = new

    def _woken(self, before: int) -> list[Callable[[], None]]:
        """Return what wakes the waiting threads if the version is not ``before``; it is called without the lock."""
        if self._version == before:
            return []
        waiting = self._waiting
        self._waiting = set()
        return [self._wakes[thread] for thread in waiting if thread in self._wakes]


def _call(wakes: Iterable[Callable[[], None]]) -> None:
    for wake in wakes:
        wake()
