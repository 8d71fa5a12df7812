"""The report of late records after a run over history, and the resulting exit status."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def limit_of(options: argparse.Namespace) -> "DropLimit":
    """Return the limit for late records: ``--max-dropped`` or the default.

    Raises:
        ConfigError: the limit is neither a share nor a number.
    """
    from streams.core.metrics import USUAL_LIMIT
    from streams.runtime import DropLimit

    return DropLimit.of(options.max_dropped or USUAL_LIMIT)


def status_of(late: "Sequence[Late]", limit: "DropLimit") -> int:
    """Print the dropped late records; return the exit status of an otherwise complete run."""
    for one in late:
        print(f"streams: {one}", file=sys.stderr)
    if not limit.exceeded(late):
        return 0
    print(
        f"streams: more than --max-dropped {limit.text}: the outputs are written, but exit status is {TOO_MANY_LATE}",
        file=sys.stderr,
    )
    return TOO_MANY_LATE


def say_drops(drops: "Iterable[Dropped]") -> None:
    """Print dropped records, except late records, which ``status_of`` prints with their share and cause."""
    from streams.core.metrics import LATE_REASONS

    for drop in drops:
        if drop.reason not in LATE_REASONS:
            print(f"streams: {drop}", file=sys.stderr)
