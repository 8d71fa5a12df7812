"""Explains why there is, or is not, an output record: traces tasks, and builds a ``Story`` from the trace."""

from streams.why.ask import answer as answer
from streams.why.ask import one_story as one_story
from streams.why.ask import targets_of as targets_of
from streams.why.live import FollowLimits as FollowLimits
from streams.why.live import TraceRunningError as TraceRunningError
from streams.why.live import follow as follow
from streams.why.parts import StoryPart as StoryPart
from streams.why.paths import AGGREGATES as AGGREGATES
from streams.why.question import Question as Question
from streams.why.question import TimeSpan as TimeSpan
from streams.why.question import shown as shown
from streams.why.recorder import Recorder as Recorder
from streams.why.story import REASONS as REASONS
from streams.why.story import End as End
from streams.why.story import Fact as Fact
from streams.why.story import Story as Story
from streams.why.story import change_value as change_value
from streams.why.trace import Trace as Trace
