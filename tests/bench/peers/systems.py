"""Which systems run which query, by which command."""

import sys
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from tests.bench.peers.lab import Lab
from tests.bench.peers.queries import records_in

QUERIES = ("Q0", "Q1", "Q2", "W1", "W1-cached", "W2", "S1", "J1", "J2")
SYSTEMS = ("ours", "kstreams", "fused", "native", "quix", "bytewax")

#: What Bytewax has for a query: counts with every update are code of the user's, state is in memory.
_BYTEWAX = {"Q0": "Q0", "Q2": "Q2", "W1": "W1u"}
#: The hand-fused programs of these read all of the usual input, or nothing.
_WHOLE = {"J1": 920_000, "J2": 920_000}
#: Slow enough for fewer records to do.
_SLOW_FUSED = ("W2", "S1")
_QUIX_BIDS = {"W1": 40_000, "W2": 40_000, "S1": 40_000}


@frozen
class Case:
    """One run of one system: what is asked for, and how it is called."""

    query: str
    system: str
    command: Sequence[str]
    #: Input records of the run, for each of which CPU is counted.
    records: int
    variables: Mapping[str, str] = field(factory=dict)


def case(lab: Lab, query: str, system: str, bids: int) -> Case | None:
    """Return the run of a query by a system; None if the system has no such thing."""
    base, is_cached = query.removesuffix("-cached"), query.endswith("-cached")
    count = _bids(base, system, bids)
    python = [lab.python("bytewax" if system == "bytewax" else "python"), "-W", "ignore"]
    script = str(lab.peers)
    command: Sequence[str] | None = None
    if system == "ours":
        command = [sys.executable, "-m", "tests.bench.peers.ours", base, str(count), *(["--cache"] * is_cached)]
    elif system == "kstreams":
        # Caching is off where every update is asked for; the others have no store, or a table's, with defaults.
        cache = "on" if is_cached or base not in ("W1", "W2", "S1") else "off"
        command = [f"{script}/ks.sh", base, "rocks", cache, "broker", str(count)]
    elif system == "fused" and count == _WHOLE.get(base, count):
        command = [*python, f"{script}/proto.py", base, str(count), *(["on"] * is_cached)]
    elif system == "native" and query in ("Q0", "Q1", "Q2", "W1"):
        command = [*python, f"{script}/native.py", base, str(count)]
    elif system == "quix" and not is_cached:
        command = [*python, f"{script}/bench_quix.py", base, str(count)]
    elif system == "bytewax" and query in _BYTEWAX:
        command = [*python, f"{script}/bench_bytewax.py", _BYTEWAX[query], str(count), "kafka"]
    return None if command is None else Case(query, system, command, records_in(base, count))


def _bids(base: str, system: str, bids: int) -> int:
    if system == "quix":
        return min(bids, _QUIX_BIDS.get(base, 60_000))
    if system == "fused" and base in _SLOW_FUSED:
        return min(bids, 300_000)
    return bids
