"""franz-go: the tests of its client, then those with chains of groups again, under kills of the broker."""

import re
from collections.abc import Iterator

from attrs import evolve

from tests.outside.gotests import built_tests, fetched_module, run_tests
from tests.outside.suite import Outcome, Room, Suite

MODULE = "github.com/twmb/franz-go"
VERSION = "1.22.3"
#: Chains of groups with members that join and leave, exactly once; each record is accounted for at the end.
KILLED = "TestGroupETL|TestTxnEtl"
KILLED_PREFIX = "killed: "
#: A broker that a chain is to outlive; sooner, static members of a classic group wait for one another.
KILL_EVERY_S = 15.0
#: Records that pass through each chain; half a million, their default, says no more of a broker.
RECORDS = "30000"
#: With less time no chain comes to its end.
LEAST_S = 60.0
#: What tests say of records that are lost, doubled, changed or in another order.  Without transactions a record comes
#: again if its commit has failed.
WRONG = re.compile(
    r"saw double offset [^\\]*\(txn|got \d+ keys|got key \d+|consumed too much|not what was expected"
    # A record that was not sent has the offset -1.
    r"|out of order(?: key|, got (?!-1 ))"
)
#: A broker that forgot what a producer had sent, or gave its place to another.
LOST = re.compile(r"OUT_OF_ORDER_SEQUENCE_NUMBER|UNKNOWN_PRODUCER_ID|INVALID_PRODUCER_ID_MAPPING|PRODUCER_FENCED")


def cause(log: str) -> str:
    """Return what a failure under kills is, by the log of all chains: they fail one another, and name no test.

    A client that gave up has lost nothing if the log knows of no wrong record.
    """
    if wrong := WRONG.search(log):
        return f"wrong records: {wrong[0]}"
    if lost := LOST.search(log):
        return f"lost its producer: {lost[0]}"
    said = re.search(r"(?:unexpected|unable to (?!delete))[^\\]{0,120}", log)
    return f"gave up: {said[0] if said else 'no end'}"


def run(room: Room) -> Iterator[Outcome]:
    """Run the package ``kgo`` on a broker, and its chains on one that is killed, behind a proxy."""
    folder = fetched_module(room, MODULE, VERSION)
    program = built_tests(room, folder, "./pkg/kgo")
    for prefix, pattern, kill_every_s in (("", room.only or ".", None), (KILLED_PREFIX, KILLED, KILL_EVERY_S)):
        is_killed = kill_every_s is not None
        if room.only and is_killed != (room.only in KILLED_PREFIX + KILLED):
            continue
        if is_killed and room.left_s < LEAST_S:
            yield Outcome(prefix + pattern, "left out", "the time that was given was over")
            continue
        with room.broker(kill_every_s=kill_every_s, proxied=is_killed) as broker:
            env = {
                "KGO_SEEDS": broker.address,
                "KGO_LOG_LEVEL": "none",
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": RECORDS,
            }
            # Whoever gives a time wants to see what comes to its end in it.
            place, may_be_cut = folder / "pkg" / "kgo", room.limit_s > 0
            options = (f"-test.run={pattern}",)
            for outcome in run_tests(room, program, place, *options, prefix=prefix, env=env, may_be_cut=may_be_cut):
                if is_killed and outcome.result == "failed":
                    log = (room.logs / f"output{prefix}.log").read_text(errors="replace")
                    outcome = evolve(outcome, note=cause(log))
                yield outcome


SUITE = Suite(
    name="kgo",
    title="franz-go (Go)",
    version=VERSION,
    origin=f"the package `kgo` of `{MODULE}` from the Go module proxy",
    needs=("go",),
    limit_s=1_800.0,
    run=run,
)
