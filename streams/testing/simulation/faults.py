"""The faults of a simulated world, with their targets and times, which are drawn from its seed."""

from collections.abc import Sequence
from random import Random

from attrs import frozen

from streams.protocol.group_messages import JoinGroup, OffsetCommit, SyncGroup
from streams.protocol.messages import AddPartitionsToTxn, EndTxn, Produce, TxnOffsetCommit
from streams.protocol.request import Request

#: Kinds of faults, with their relative frequencies.
_WEIGHTS = {
    "crash": 30,
    "stall": 15,
    "restart": 15,
    "cut": 15,
    "reset": 8,
    "silence": 5,
    "broker_restart": 10,
    "broker_host_restart": 4,
    "add_thread": 10,
    "remove_thread": 6,
    "pause": 8,
    "add_partitions": 6,
    "move_leaders": 8,
    "move_coordinators": 8,
}
#: Minimum and maximum duration of a fault in milliseconds; most are shorter than a session timeout.
_DURATIONS_MS = {
    "crash": (50, 9_000),
    "stall": (200, 12_000),
    "restart": (10, 4_000),
    "cut": (200, 12_000),
    "broker_restart": (50, 6_000),
    "broker_host_restart": (500, 6_000),
    "pause": (200, 4_000),
    "move_leaders": (10, 5_000),
    "move_coordinators": (10, 7_000),
}
_WORDS = {
    "crash": "{0} crashes and is restarted after {1} ms",
    "stall": "{0} stalls for {1} ms",
    "restart": "{0} closes and is restarted after {1} ms",
    "cut": "{0} is cut off for {1} ms",
    "reset": "all connections of {0} are reset",
    "silence": "all connections of {0} are silently lost",
    "broker_restart": "the broker crashes and is restarted after {1} ms",
    "broker_host_restart": "the host of the broker dies without closing connections, and is restarted after {1} ms",
    "add_thread": "{0} adds a thread",
    "remove_thread": "{0} removes a thread",
    "pause": "{0} pauses processing for {1} ms",
    "add_partitions": "topic {0} gets twice the partitions",
    "move_leaders": "all partitions get another leader after {1} ms without one",
    "move_coordinators": "all groups and transactions get another coordinator, which loads their state for {1} ms",
}
#: The faults of brokers; all others are faults of a machine.
BROKER_FAULTS = frozenset(
    {"broker_restart", "broker_host_restart", "move_leaders", "move_coordinators", "add_partitions"}
)
#: Probability that a fault closely follows the previous one, on the same machine if both are faults of a machine.
_FOLLOWING = 0.3
_FOLLOWING_MS = 1_500
#: Probability that a fault of these kinds is triggered by a request of its machine, and its maximum delay in ms.
_AT_REQUEST = 0.4
AT_REQUEST_MS = 2_000
_AT_REQUEST_KINDS = frozenset({"crash", "stall", "cut", "reset", "silence"})
#: These requests, by ``is_exactly_once``: some of group membership, and those of a commit.
_REQUESTS: dict[bool, tuple[type[Request], ...]] = {
    False: (JoinGroup, SyncGroup, Produce, OffsetCommit),
    True: (JoinGroup, SyncGroup, Produce, AddPartitionsToTxn, TxnOffsetCommit, EndTxn, EndTxn),
}


@frozen
class Fault:
    """One fault; ``value`` is its duration in milliseconds, if it has one.

    With ``request``, it occurs when the machine sends the next request of this type, at the latest after
    ``AT_REQUEST_MS``.  With ``is_in_restore``, it occurs while the machine restores stores, or not at all.
    """

    at_ms: int
    kind: str
    target: str
    value: int = 0
    request: type[Request] | None = None
    is_in_restore: bool = False

    def __str__(self) -> str:
        when = f", or with the next {self.request.__name__}" if self.request is not None else ""
        when += ", or in the next restore from then on" if self.is_in_restore else ""
        return f"at {self.at_ms / 1000:.3f} s{when}: {_WORDS[self.kind].format(self.target, self.value)}"


def draw_faults(
    rng: Random, machines: Sequence[str], topics: Sequence[str], storm_ms: int, *, is_exactly_once: bool
) -> list[Fault]:
    """Draw the faults of a world, all within its first ``storm_ms`` milliseconds.

    The partition count of each of ``topics`` may be doubled once.
    """
    kinds = list(_WEIGHTS)
    weights = list(_WEIGHTS.values())
    growing = list(topics)
    faults: list[Fault] = []
    for _ in range(rng.randint(3, 10)):
        kind = rng.choices(kinds, weights)[0]
        machine = rng.choice(machines)
        at_ms = rng.randrange(storm_ms)
        if faults and rng.random() < _FOLLOWING:
            before = faults[-1]
            machine = before.target if before.target in machines else machine
            at_ms = min(before.at_ms + rng.randrange(_FOLLOWING_MS), storm_ms - 1)
        target = "brokers" if kind in BROKER_FAULTS else machine
        if kind == "add_partitions":
            if not growing:
                continue
            target = growing.pop(rng.randrange(len(growing)))
        value = rng.randint(*_DURATIONS_MS[kind]) if kind in _DURATIONS_MS else 0
        waits = kind in _AT_REQUEST_KINDS and rng.random() < _AT_REQUEST
        request = rng.choice(_REQUESTS[is_exactly_once]) if waits else None
        faults.append(Fault(at_ms, kind, target, value, request))
    return sorted(faults, key=lambda fault: (fault.at_ms, fault.kind, fault.target))


def draw_crashes_in_restores(rng: Random, machines: Sequence[str], storm_ms: int) -> list[Fault]:
    """Draw a crash of each machine in a restore, all within the first ``storm_ms`` milliseconds."""
    return [
        Fault(rng.randrange(storm_ms), "crash", machine, rng.randint(*_DURATIONS_MS["crash"]), is_in_restore=True)
        for machine in machines
    ]
