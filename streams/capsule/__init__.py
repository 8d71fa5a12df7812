"""Capsules: a span of a live application, captured with its records, and re-run in the recorded order."""

from streams.capsule.capsule import Capsule, TaskSpan
from streams.capsule.capture import capture
from streams.capsule.reproduce import Agreement, Difference, Moment, Reproduction
from streams.capsule.stepper import Stepper

__all__ = ["Capsule", "Agreement", "Difference", "Moment", "Reproduction", "Stepper", "TaskSpan", "capture"]
