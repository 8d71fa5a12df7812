"""The valid frames of a task in order: recordings of one commit each, without those of failed commits."""

from collections.abc import Iterable

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.runtime import Frame


@define(eq=False)
class FrameChain:
    """The valid frames (recordings of one commit) of a task; each starts at the end offsets of the previous frame."""

    task_id: TaskId
    frames: list[Frame] = field(factory=list)
    #: Number of discarded frames: those of failed commits, and those of a former owner of the task.
    discarded: int = 0
    #: Number of places where frames are missing; the chain begins after the last one.
    gaps: int = 0

    def add(self, frame: Frame) -> None:
        """Add the task's next frame from the recorder topic.

        With at-least-once a frame is sent before its offsets are committed.  If that commit fails, the task is
        reopened at the end offsets of an earlier frame, and all later frames are discarded.  A previous owner of the
        task may send its first frame late; it is discarded, because it opened the task before the current owner did.
        """
        frames = self.frames
        if frame.opening is not None and frame.opening.now_ms < self._opened_ms():
            self.discarded += 1
        elif frame.opening is not None:
            chain = frames[:]
            while chain and not _continues(frame, chain[-1]):
                chain.pop()
            # Without a commit, the task is opened again where it began.
            if chain or not frames or (frames[0].opening and frames[0].opening.start == frame.opening.start):
                self.discarded += len(frames) - len(chain)
            else:
                self.gaps += 1
            frames[:] = [*chain, frame]
        elif not frames:
            # Retention has deleted the earlier frames: the chain starts with this one.
            frames.append(frame)
        elif frames[-1].run != frame.run:
            self.discarded += 1
        elif frame.number == frames[-1].number + 1:
            frames.append(frame)
        else:
            self.gaps += 1
            frames[:] = [frame]

    def _opened_ms(self) -> int:
        """Return the time at which the task was last opened, or 0 if it is unknown."""
        return next((frame.opening.now_ms for frame in reversed(self.frames) if frame.opening is not None), 0)


def _continues(frame: Frame, last: Frame) -> bool:
    assert frame.opening is not None
    start = frame.opening.start
    return all(last.end[partition] == start[partition] for partition in last.end.keys() & start.keys())


def chains(frames: Iterable[Frame]) -> dict[TaskId, FrameChain]:
    """Return the chain of valid frames of each task; ``frames`` must be in offset order."""
    result: dict[TaskId, FrameChain] = {}
    for frame in frames:
        result.setdefault(frame.task_id, FrameChain(frame.task_id)).add(frame)
    return dict(sorted(result.items()))
