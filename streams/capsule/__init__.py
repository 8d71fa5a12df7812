"""Capsules: files that contain the records of a time span of a live application, to re-run it in the same order."""

from streams.capsule.capsule import Capsule, TaskSpan
from streams.capsule.capture import capture
from streams.capsule.reproduce import Agreement, Difference, Moment, Reproduction
from streams.capsule.secrets import without_secrets
from streams.capsule.stepper import Stepper

__all__ = [
    "Capsule",
    "Agreement",
    "Difference",
    "Moment",
    "Reproduction",
    "Stepper",
    "TaskSpan",
    "capture",
    "without_secrets",
]
