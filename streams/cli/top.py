"""``streams top``: what a running application does, in a terminal; the same facts as on its page."""

import argparse
import json
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streams.cli.http import token_of
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_debug

if TYPE_CHECKING:
    from rich.console import Group

#: Seconds between two requests, and for an answer.
_EVERY_S = 2.0
_TIMEOUT_S = 10.0
#: Tasks and errors that are shown.
_TASKS = 20
_ERRORS = 5


def add_parser(commands: Commands) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "top",
        help="show what a running application does",
        description="Show tasks, lag, errors and instances of an application that runs with --http, until Ctrl-C.",
    )
    parser.add_argument("--http", metavar="URL", required=True, help="address of an instance, such as 127.0.0.1:8080")
    parser.add_argument("--http-token-file", metavar="FILE", help="file with the token of the server, if it needs one")
    parser.add_argument("--group", action="store_true", help="all instances of the group, not only this one")
    parser.add_argument("--json", action="store_true", help="print the status once, as JSON")
    add_debug(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Show the status."""
    token = token_of(options.http_token_file)
    if options.json:
        json.dump(_status(options, token), sys.stdout, indent=2, ensure_ascii=False)
        print()
        return 0
    from rich.live import Live

    never = Event()
    with Live(screen(_status(options, token)), screen=sys.stdout.isatty()) as live:
        while sys.stdout.isatty():
            never.wait(_EVERY_S)
            live.update(screen(_status(options, token)))
    return 0


def _status(options: argparse.Namespace, token: str | None) -> dict[str, Any]:
    """Ask for the status.

    Raises:
        UsageError: the server cannot be reached, or has refused.
    """
    given = options.http if "://" in options.http else f"http://{options.http}"
    place = urlsplit(given)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise UsageError(f"--http {options.http}: expected an address such as 127.0.0.1:8080")
    path = f"{place.path.rstrip('/')}/status?scope={'group' if options.group else 'instance'}"
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
        connection = kind(place.hostname, place.port, timeout=_TIMEOUT_S)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        found: dict[str, Any] = json.loads(body)
    except (OSError, HTTPException, ValueError) as error:
        raise UsageError(f"--http {options.http}: no status from there: {error}; is the application running?") from None
    if answer.status != 200:
        raise UsageError(f"--http {options.http}: {found.get('message', answer.status)}")
    return found


def screen(status: dict[str, Any]) -> "Group":
    """Return the tables for a status; the tasks with the most lag come first."""
    from rich.console import Group
    from rich.text import Text

    totals = status["totals"]
    head = Text.assemble(
        (status["application_id"], "bold"),
        f"  {status['state']}{', paused' if status['is_paused'] else ''}  ",
        f"{totals['in_rate']:,.0f}/s in, {totals['out_rate']:,.0f}/s out, {totals['processed']:,} processed, ",
        f"{totals['failures']:,} errors, {totals['dropped']:,} dropped, {totals['dead_letters']:,} dead letters",
    )
    columns = status["tasks"]["columns"]
    tasks = [dict(zip(columns, row, strict=True)) for row in status["tasks"]["rows"]]
    tasks.sort(key=lambda task: (-task["lag"], -task["rate"]))
    threads = [row[0] for row in status["threads"]["rows"]]
    shown = [
        (
            task["task"], threads[task["thread"]], task["state"], f"{task['rate']:,.0f}", f"{task['lag']:,}",
            _ms(task["time_lag_ms"]), task["waits_for"] or "", f"{task['busy']:.0%}",
        )
        for task in tasks[:_TASKS]
    ]  # fmt: skip
    parts: list[Any] = [
        head,
        _table("task,owner,state,records/s,lag,event-time lag,waits for,busy", shown, f"{len(tasks)} tasks"),
    ]
    if status["restoring"]:
        rows = [(row["task"], f"{row['remaining']:,}", _ms(row["eta_ms"])) for row in status["restoring"][:_TASKS]]
        parts.append(_table("task,records left,ready in", rows, "restoring"))
    if status["failures"]:
        errors = [
            (row["node"], f"{row['error']}: {row['message']}", row["place"], f"{row['count']:,}")
            for row in status["failures"][:_ERRORS]
        ]
        parts.append(_table("node,error,where,times", errors, "last errors"))
    instances = [
        (row["client"], row["endpoint"], row["error"] or row["state"] or "not asked", f"{row['tasks']:,}")
        for row in status["instances"]
    ]
    parts.append(_table("instance,address,state,tasks", instances, "instances"))
    return Group(*parts)


def _table(heads: str, rows: Sequence[tuple[str, ...]], title: str) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads.split(","), title=title, title_justify="left", box=SIMPLE, expand=True)
    for row in rows:
        # As texts: markup and control characters of messages are no commands.
        table.add_row(*(Text("".join(letter if letter.isprintable() else " " for letter in cell)) for cell in row))
    return table


def _ms(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:,.0f} ms" if time_ms < 1000 else f"{time_ms / 1000:,.1f} s"
