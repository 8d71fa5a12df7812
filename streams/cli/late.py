"""The end of a run over history: what it dropped, its last line, and its exit status."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.lines import say

if TYPE_CHECKING:
    from streams.core.blocks.records import TaskId
    from streams.core.metrics import Dropped
    from streams.runtime import DropLimit, Late

#: Exit status of a complete run that dropped more late records than allowed.
TOO_MANY_LATE = 3


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the ``--max-dropped`` argument."""
    from streams.core.metrics import USUAL_LIMIT

    parser.add_argument(
        "--max-dropped",
        metavar="SHARE|N",
        help="records that may be dropped as late at one node, as a share of its records or a number; above it the "
        f"exit status is {TOO_MANY_LATE}, outputs are still written (default {USUAL_LIMIT}%). A record counts once for "
        "each window for which it is late: with windows that overlap, more than 100%% are possible, and allowed by a "
        "larger share such as 1000%%",
    )
    parser.add_argument(
        "--charts",
        metavar="FILE",
        help="write how late records were (which grace keeps them) and records by partition as bars: text, or a "
        "drawing if FILE ends with .svg",
    )


def limit_of(options: argparse.Namespace) -> "DropLimit":
    """Return the limit for late records: ``--max-dropped`` or the default.

    Raises:
        ConfigError: the limit is neither a share nor a number.
    """
    from streams.core.metrics import USUAL_LIMIT
    from streams.runtime import DropLimit

    return DropLimit.of(options.max_dropped or USUAL_LIMIT)


def end(
    *,
    records_in: int,
    records_out: int | None,
    drops: "Sequence[Dropped]",
    late: "Sequence[Late]",
    limit: "DropLimit",
    elapsed_ms: int,
) -> int:
    """Print what a complete run has dropped, and the line that ends it; return its exit status."""
    dropped = say_drops(drops)
    for one in late:
        say(str(one))
    counts = {"record in" if records_in == 1 else "records in": records_in, "out": records_out}
    counts |= {"late": sum(one.count for one in late) or None, "dropped": dropped or None}
    parts = [
        *(f"{count:,} {what}" for what, count in counts.items() if count is not None),
        f"{elapsed_ms / 1000:.1f} s",
    ]
    status = TOO_MANY_LATE if limit.exceeded(late) else 0
    over = f"; more than --max-dropped {limit.text}: the outputs are written, but exit status is {status}"
    say(f"{', '.join(parts)}{over if status else ''}")
    return status


def write_charts(path: str | None, late: "Sequence[Late]", processed: "Mapping[TaskId, int]") -> None:
    """Write the bars of ``--charts``, if it is given."""
    from streams.runtime import charts_of

    if path:
        charts = charts_of(late, processed)
        Path(path).write_text(charts.to_svg() if path.endswith(".svg") else f"{charts}\n", encoding="utf-8")


def say_drops(drops: "Iterable[Dropped]") -> int:
    """Print dropped records, except late ones, whose share and cause are said; return their number."""
    from streams.core.metrics import LATE_REASONS

    others = [drop for drop in drops if drop.reason not in LATE_REASONS]
    for drop in others:
        say(str(drop))
    return sum(drop.count for drop in others)
