"""Going on with the state of an application of Kafka Streams in Java, and giving it back: checks before it happens."""

from streams.takeover.described import compare as compare
from streams.takeover.described import parsed as parsed
from streams.takeover.examine import Candidate as Candidate
from streams.takeover.examine import Examination as Examination
from streams.takeover.examine import Report as Report
from streams.takeover.facts import ClusterReader as ClusterReader
from streams.takeover.marks import PositionMark as PositionMark
from streams.takeover.report import as_json as as_json
from streams.takeover.report import as_text as as_text
