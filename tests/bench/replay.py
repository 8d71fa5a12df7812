"""``python -m tests.bench.replay [--bids N] [--rounds N] [--only REGEX]``: replay at scale, and what it is built on.

A windowed count and a windowed join over Nexmark, by

* ``task``: the stream tasks alone, one after the other: blocks read off the clock, outputs thrown away;
* ``bare``: ``drive.run_work`` in this process, from an archive to files of outputs and snapshots;
* ``local-N``: the local executor with N processes, from an archive;
* ``spark-N-archive``, ``spark-N-lines``: Spark on N cores, from an archive or from JSON lines, which are
  read, keyed and partitioned first;
* ``sql-N``: the same count in Spark's own SQL, final counts only;
* ``pandas-N``: the same count in a plain Python loop in ``applyInPandas``, every update;
* ``heap``: the count over one partition five times as large as the JVM's heap, on one core.

Each case is a process of its own, rounds are interleaved, and all results must be equal.  The history is made
once and kept in ``--cache``.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import field, frozen

from tests.bench.harness import machine
from tests.bench.replay_case import HEAP_MB
from tests.bench.replay_history import History, history_of, single_partition

CORES = (1, 2, 4)
CASES = (
    "count/task",
    "count/bare",
    *(f"count/local-{cores}" for cores in CORES),
    *(f"count/spark-{cores}-archive" for cores in CORES),
    *(f"count/spark-{cores}-lines" for cores in CORES),
    *(f"count/sql-{cores}" for cores in CORES),
    *(f"count/pandas-{cores}" for cores in CORES),
    "count/heap",
    "join/task",
    "join/bare",
    *(f"join/local-{cores}" for cores in CORES),
    *(f"join/spark-{cores}-archive" for cores in CORES),
    *(f"join/spark-{cores}-lines" for cores in CORES),
)
_WARM_BIDS = 100_000


@frozen
class Result:
    """All rounds of one case."""

    case: str
    runs: list[dict[str, Any]] = field(factory=list)

    def median(self, name: str) -> float:
        return statistics.median(run[name] for run in self.runs)

    def cpu(self, which: int) -> float:
        return statistics.median(run["cpu"][which] for run in self.runs)

    @property
    def records(self) -> int:
        return int(self.runs[0]["records_in"])

    @property
    def wall_us(self) -> float:
        return self.median("wall_s") / self.records * 1e6

    @property
    def lowest_us(self) -> float:
        """Wall time of the fastest round: on a machine that others use too, the nearest to a quiet one's."""
        return min(run["wall_s"] for run in self.runs) / self.records * 1e6

    @property
    def cpu_us(self) -> float:
        return sum(map(self.cpu, range(3))) / self.records * 1e6


def run_case(case: str, history: History, warm: History, single: Path | None, cache: Path) -> dict[str, Any]:
    """Run a case once, in a process of its own.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryDirectory(dir=cache, prefix="run-") as work:
        command = [sys.executable, "-m", "tests.bench.replay_case", case, "--work", f"{work}/work"]
        command += ["--history", str(history.folder), "--bids", str(history.bids)]
        command += ["--warm", str(warm.folder), "--warm-bids", str(warm.bids)]
        command += [] if single is None else ["--single", str(single)]
        settings = os.environ | {"SPARK_LOCAL_DIRS": work}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_equal(results: Sequence[Result]) -> list[str]:
    """Return what the results have in common, in words.

    Raises:
        SystemExit: they differ.
    """
    lines = []
    for query, kind in (("count", "exact"), ("count", "final"), ("join", "exact")):
        found: dict[str, list[str]] = {}
        for result in results:
            for run in result.runs:
                if result.case.startswith(f"{query}/") and result.case != "count/heap" and run[kind]:
                    found.setdefault(run[kind], []).append(result.case)
        if len(found) > 1:
            raise SystemExit(f"{query}: results differ: {found}")
        what = "all output records, in order" if kind == "exact" else "the last count of each window and key"
        for digest, cases in found.items():
            lines.append(f"{query}, {what}: equal in {len(cases)} runs of {len(set(cases))} cases ({digest})")
    return lines


def table(results: Sequence[Result]) -> list[str]:
    """Return a row per case."""
    alone = {result.case.partition("/")[0]: result for result in results if result.case.endswith("/task")}
    lines = [
        "| case | records | records/s | wall us a record (lowest) | above the task alone (lowest) | CPU us a record "
        "| CPU s: driver + JVM + workers | peak MiB: driver, JVM, worker | load |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        query = result.case.partition("/")[0]
        above = ""
        if query in alone and result is not alone[query]:
            base = alone[query]
            above = f"{result.wall_us - base.wall_us:+.2f} ({result.lowest_us - base.lowest_us:+.2f})"
        cpu = " + ".join(f"{result.cpu(which):.1f}" for which in range(3))
        wall = f"{result.wall_us:.2f} ({result.lowest_us:.2f})"
        peaks = ", ".join(f"{result.median(name):,.0f}" for name in ("peak_driver", "peak_jvm", "peak_worker"))
        lines.append(
            f"| {result.case} | {result.records:,} | {1e6 / result.wall_us:,.0f} | {wall} | {above} "
            f"| {result.cpu_us:.2f} | {cpu} | {peaks} | {result.median('load'):.1f} |"
        )
    return lines


def goals(results: Sequence[Result]) -> list[str]:
    """Return what was to be reached, and what was."""
    known = {result.case: result for result in results}
    lines = []
    for query in ("count", "join"):
        for form, most in (("archive", 3), ("lines", 6)):
            spark = known.get(f"{query}/spark-1-{form}")
            for base in ("task", "bare"):
                alone = known.get(f"{query}/{base}")
                if spark is not None and alone is not None:
                    above, lowest = spark.wall_us - alone.wall_us, spark.lowest_us - alone.lowest_us
                    shown = f"{above:+.2f} us a record above {base}, {lowest:+.2f} by the fastest rounds"
                    shown += f", CPU {spark.cpu_us - alone.cpu_us:+.2f}"
                    lines.append(f"{query}, local[1], {form}: {shown} (goal: {most})")
        for form in ("archive", "lines"):
            by_cores = [known.get(f"{query}/spark-{cores}-{form}") for cores in CORES]
            found = [result.cpu_us for result in by_cores if result is not None]
            if len(found) > 1:
                shown = ", ".join(f"{cpu:.2f}" for cpu in found)
                lines.append(f"{query}, {form}: CPU us a record by cores: {shown}")
    for cores in CORES:
        ours = known.get(f"count/spark-{cores}-archive")
        for other in ("sql", "pandas"):
            peer = known.get(f"count/{other}-{cores}")
            if ours is not None and peer is not None:
                ratio, cpu = ours.wall_us / peer.wall_us, ours.cpu_us / peer.cpu_us
                lines.append(f"count, local[{cores}]: {ratio:.2f} times the wall, {cpu:.2f} times the CPU of {other}")
    return lines


def states(results: Sequence[Result]) -> list[str]:
    """Return how much state the largest task of each query had."""
    lines = []
    for result in results:
        if result.case.endswith("/bare") or result.case == "count/heap":
            run = result.runs[0]
            size = run["state_bytes"] / (1 << 20)
            lines.append(f"{result.case}: {run['state_rows']:,} entries, {size:.1f} MiB in the largest task's snapshot")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.replay")
    options.add_argument("--bids", type=int, default=20_000_000)
    options.add_argument("--join-bids", type=int, help="bids that the join reads (as many as --bids)")
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--only", default="", help="regular expression of the cases, such as count/spark-1")
    options.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "streams-bench", help="where histories are kept"
    )
    options.add_argument("--heap-factor", type=float, default=5.0, help="size of the one partition by that of the heap")
    options.add_argument("--json", type=Path, help="keep all runs in a file, and count those that it has already")
    chosen = options.parse_args()
    cases = [case for case in CASES if re.search(chosen.only, case)]
    chosen.cache.mkdir(parents=True, exist_ok=True)
    warm = history_of(chosen.cache, _WARM_BIDS)
    sizes = {"count": chosen.bids, "join": chosen.join_bids or chosen.bids}
    histories = {query: history_of(chosen.cache, sizes[query]) for query in {case.partition("/")[0] for case in cases}}
    single: Path | None = None
    if "count/heap" in cases:
        single, count, size = single_partition(chosen.cache, int(HEAP_MB * (1 << 20) * chosen.heap_factor))
        print(f"one partition: {count:,} bids, {size >> 20:,} MiB; heap {HEAP_MB} MiB", flush=True)
    print(f"{machine()}; {datetime.now(UTC):%Y-%m-%d}; {chosen.bids:,} bids, {chosen.rounds} rounds", flush=True)
    known = json.loads(chosen.json.read_text()) if chosen.json is not None and chosen.json.exists() else {}
    results = {case: Result(case, known.get(case, [])) for case in CASES}
    for number in range(chosen.rounds):
        for case in cases:
            run = run_case(case, histories[case.partition("/")[0]], warm, single, chosen.cache)
            results[case].runs.append(run)
            print(
                f"  round {number + 1}: {case}: {run['wall_s']:.1f} s, load {run['load']:.1f}",
                file=sys.stderr,
                flush=True,
            )
            if chosen.json is not None:
                chosen.json.write_text(
                    json.dumps({case: result.runs for case, result in results.items() if result.runs})
                )
    found = [result for result in results.values() if result.runs]
    for part in (table(found), check_equal(found), goals(found), states(found)):
        print("\n" + "\n".join(part))


if __name__ == "__main__":
    main()
