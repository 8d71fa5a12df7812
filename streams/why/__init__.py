"""Why there is, or is not, an output record: tracing of tasks, and stories told from traces."""

from streams.why.ask import answer, targets_of
from streams.why.live import FollowLimits, TraceRunningError, follow
from streams.why.question import Question, TimeSpan, moment, shown
from streams.why.recorder import Recorder
from streams.why.story import REASONS, End, Fact, Story, change_value
from streams.why.trace import Trace

__all__ = [
    "REASONS",
    "End",
    "Fact",
    "FollowLimits",
    "TraceRunningError",
    "Question",
    "Recorder",
    "TimeSpan",
    "Story",
    "Trace",
    "answer",
    "change_value",
    "follow",
    "moment",
    "shown",
    "targets_of",
]
