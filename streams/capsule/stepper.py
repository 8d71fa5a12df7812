"""Steps through a task of a capsule, forward and backward, with text commands."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import define, evolve, field

from streams.capsule.reproduce import Moment, Reproduction, row_text
from streams.core.blocks.records import TaskId, Windowed
from streams.core.errors import InputError, StreamsError
from streams.core.event_time.time_texts import time_text
from streams.state import Store
from streams.why import Recorder, Trace, change_value, shown

#: The last possible time in epoch milliseconds.
_LAST_MS = (1 << 63) - 1
_HELP = """\
n [COUNT]      next step: a record, punctuations, a flush or a commit
b [COUNT]      back
g NUMBER       go to step NUMBER
c              go on to the next commit
r              show the step again
s              the stores of the task
p STORE [KEY]  rows of a store, all or of a key
q              quit"""


def _any(_: Any) -> bool:
    return False


@define(eq=False)
class Stepper:
    """Steps through one task of a capsule; ``say`` is called with each line of output.

    To step backward, the task is re-run from the last preceding commit at which its state is known, or from the start
    of the captured time span.
    """

    _reproduction: Reproduction
    _task_id: TaskId
    _say: Callable[[str], None]
    #: Number of steps executed.
    _place: int = 0
    _current: Moment | None = None
    #: The step and the number of each commit so far from which the task can be re-run.
    _commits: list[tuple[int, int]] = field(factory=lambda: [(0, 0)])
    #: Number of commits executed.
    _committed: int = 0
    _moments: Iterator[Moment] = field(init=False)
    _trace: Trace = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._restart(0)

    def run(self, lines: Iterable[str]) -> None:
        """Execute commands until ``q`` or the end of the lines."""
        for line in lines:
            word, *arguments = line.split() or ["n"]
            if word == "q":
                return
            try:
                self._do(word, arguments)
            except StreamsError as error:
                self._say(f"error: {error}")

    def _do(self, word: str, arguments: list[str]) -> None:
        if word == "n":
            self._forward(_number(arguments))
        elif word == "b":
            self._go(self._place - _number(arguments))
        elif word == "g":
            self._go(_number(arguments))
        elif word == "c":
            while self._advance() and self._current is not None and self._current.kind != "committed":
                pass
            self._show()
        elif word == "r":
            self._show()
        elif word == "s":
            self._stores()
        elif word == "p" and arguments:
            self._rows(arguments[0], " ".join(arguments[1:]))
        else:
            self._say(_HELP)

    def _restart(self, place: int) -> None:
        """Return to the last commit at or before step number ``place`` at which the state is known."""
        while self._commits[-1][0] > place:
            self._commits.pop()
        self._place, self._committed = self._commits[-1]
        self._trace = Trace(_any, _any)
        self._current = None
        again = evolve(self._reproduction, watch=Recorder(self._trace))
        self._moments = again.moments(self._task_id, self._committed)

    def _advance(self) -> bool:
        """Execute one step; return False at the end of the captured span."""
        if self._committed == len(self._reproduction.capsule.spans[self._task_id].frames):
            # Without another step the task stays open, so that its stores can be read.
            self._say("the end of the span")
            return False
        self._trace.recent.clear()
        moment = next(self._moments)
        self._current = moment
        self._place += 1
        if moment.kind == "committed":
            self._committed += 1
            if self._place > self._commits[-1][0] and self._reproduction.begins_at(self._task_id, self._committed):
                self._commits.append((self._place, self._committed))
        return True

    def _forward(self, count: int) -> None:
        for _ in range(count):
            if not self._advance():
                return
        self._show()

    def _go(self, place: int) -> None:
        if place < self._place:
            # At least one step is executed again, since a step shows what it has done.
            self._restart(max(place - 1, 0))
        if place < 1:
            self._say("the start of the span")
            return
        self._forward(place - self._place)

    # --- showing ----------------------------------------------------------------------------

    def _show(self) -> None:
        moment = self._current
        if moment is None:
            self._say("the start of the span; n is the next step")
            return
        what = f"{moment.input} offset {moment.offset}" if moment.input is not None else ""
        self._say(f"{self._place}  {moment.kind} {what}".rstrip() + f", wall clock {time_text(moment.now_ms)}")
        for episode in self._trace.recent:
            for step in episode.steps:
                for output in step.outputs:
                    text = (
                        f"{shown(output.key)}: {shown(change_value(output.value))} at {time_text(output.timestamp_ms)}"
                    )
                    self._say(f"    {step.node} forwarded {text}")
                for reason, _ in step.drops:
                    self._say(f"    {step.node} dropped it: {reason}")
        for partition, row in moment.outputs:
            self._say(f"    to {partition}: {row_text(row)}")
        for store, row in moment.changes:
            self._say(f"    store {store}: {row_text(row)}")

    def _stores(self) -> None:
        if self._current is not None:
            for name, store in self._current.task.stores.items():
                self._say(
                    f"    {name}: {store.type_name}, {sum(len(block) for block in store.snapshot_blocks()):,} rows"
                )

    def _rows(self, name: str, key: str) -> None:
        if self._current is None:
            raise InputError("no step is done yet")
        stores = self._current.task.stores
        if name not in stores:
            raise InputError(f"task {self._task_id} has no store {name!r}; it has {', '.join(stores) or 'none'}")
        rows = [(entry_key, text) for entry_key, text in entries(stores[name]) if not key or _is(entry_key, key)]
        for entry_key, text in rows:
            self._say(f"    {shown(entry_key)}: {text}")
        if not rows:
            self._say(f"    no such key: {key}" if key else "    empty")


def entries(store: Store) -> Iterator[tuple[Any, str]]:
    """Yield the entries of a store (by key, window, session or version), each as its key and its value as text.

    Those of a custom kind are the entries of the store under its view.
    """
    kind = store.spec.kind
    view: Any = store.view if kind.base == kind.name else store
    if kind.has_versions:
        to_key = store.spec.key_serde.deserialize
        for data in dict.fromkeys(data for block in store.snapshot_blocks() for data in block.keys):
            for version in view.history(to_key(data), 0, _LAST_MS):
                until = "now" if version.valid_to_ms is None else time_text(version.valid_to_ms)
                yield to_key(data), f"{shown(version.value)} from {time_text(version.timestamp_ms)} to {until}"
    else:
        yield from ((entry_key, shown(value)) for entry_key, value in kind.rows(view))


def _number(arguments: list[str]) -> int:
    if not arguments:
        return 1
    if not arguments[0].isdecimal():
        raise InputError(f"{arguments[0]!r} is not a number of steps")
    return int(arguments[0])


def _is(key: Any, text: str) -> bool:
    bare = key.key if type(key) is Windowed else key
    return text in (str(bare), repr(bare))
