"""``streams top``: show the status of a running application in a terminal, with the figures of its web page."""

import argparse
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streams.cli.http import token_of
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_debug, add_form
from streams.cli.terminal import console, show, table, text
from streams.core.clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console, Group

#: Seconds between two requests, and between two checks of the keyboard and the terminal size.
_EVERY_MS = 2_000
_LOOK_S = 0.2
#: Timeout of a request in seconds.
_TIMEOUT_S = 10.0
#: Number of tasks, and of rows of each other table, that are shown.
_TASKS = 20
_ROWS = 5
#: Samples, of five seconds each, that are drawn as bars.
_SAMPLES = 36
_BARS = "▁▂▃▄▅▆▇█"
_NO_KEY = b"-"
_STYLES = {"": "default", "warn": "yellow", "bad": "red"}


def add_parser(commands: Commands) -> None:
    """Add ``streams top`` and its arguments to the program."""
    parser = commands.add_parser(
        "top",
        description="Show tasks, lag, errors and instances of an application that runs with --http, until q or Ctrl-C.",
    )
    parser.add_argument("--http", metavar="URL", required=True, help="address of an instance, such as 127.0.0.1:8080")
    parser.add_argument("--http-token-file", metavar="FILE", help="file with the token of the server, if it needs one")
    parser.add_argument("--group", action="store_true", help="all instances of the group, not only this one")
    add_form(parser, "json: the status once, for scripts (default text)")
    parser.add_argument("--no-color", action="store_true", help="no colors; also with NO_COLOR in the environment")
    add_debug(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Show the status once, or on a terminal until q is pressed."""
    token = token_of(options.http_token_file)
    if options.format == "json":
        json.dump(_status(options, token), sys.stdout, indent=2, ensure_ascii=False)
        print()
        return 0
    status = _status(options, token)
    terminal = console(no_color=options.no_color)
    if not terminal.is_terminal:
        show(screen(status, terminal.width))
        return 0
    with _keys() as pressed:
        _show(terminal, status, options, token, pressed)
    return 0


def _show(
    console: "Console",
    status: dict[str, Any],
    options: argparse.Namespace,
    token: str | None,
    pressed: Callable[[], bytes],
) -> None:
    """Show the status in the whole terminal, whose size may change, until q is pressed."""
    from rich.live import Live

    clock = SystemClock()
    trouble = ""
    is_paused = False
    size = console.size
    next_ms = clock.monotonic_ms() + _EVERY_MS
    with Live(
        get_renderable=lambda: screen(
            status, console.width, trouble, console.height, "paused" if is_paused else "pause"
        ),
        console=console,
        screen=True,
        auto_refresh=False,
    ) as live:
        live.refresh()
        while b"q" not in (keys := pressed()):
            is_paused ^= b"p" in keys
            options.group ^= b"g" in keys
            if b"g" in keys or (clock.monotonic_ms() >= next_ms and not is_paused):
                try:
                    status = _status(options, token)
                    trouble = ""
                except UsageError as error:
                    # The application may be restarting.
                    trouble = str(error)
                next_ms = clock.monotonic_ms() + _EVERY_MS
            elif console.size == size and keys == _NO_KEY:
                continue
            size = console.size
            live.refresh()


@contextmanager
def _keys() -> Iterator[Callable[[], bytes]]:
    """Yield a function that waits a moment for key presses, and returns them; q is also the end of the keyboard.

    Keys are read as they are pressed, without echo, until the end of the ``with`` block.
    """
    # Not on Windows.
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    keyboards = [keyboard] if sys.stdin.isatty() else []

    def pressed() -> bytes:
        ready, _, _ = select.select(keyboards, [], [], _LOOK_S)
        return os.read(keyboard, 64).lower() or b"q" if ready else _NO_KEY

    before = termios.tcgetattr(keyboard) if keyboards else None
    try:
        if keyboards:
            tty.setcbreak(keyboard)
        yield pressed
    except KeyboardInterrupt:
        return
    finally:
        if before is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _status(options: argparse.Namespace, token: str | None) -> dict[str, Any]:
    """Request the status from the application's HTTP server.

    Raises:
        UsageError: the server cannot be reached, or refuses the request.
    """
    address = options.http if "://" in options.http else f"http://{options.http}"
    place = urlsplit(address)
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
        status: dict[str, Any] = json.loads(body)
    except (OSError, HTTPException, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise UsageError(f"--http {options.http}: no status from there: {cause}; is the application running?") from None
    if answer.status != 200:
        raise UsageError(f"--http {options.http}: {status.get('message', answer.status)}")
    return status


def screen(status: dict[str, Any], width: int, trouble: str = "", height: int = 0, pause: str = "") -> "Group":
    """Return the tables that show a status in ``width`` columns; ``trouble`` is an error text to show first.

    ``pause`` says what the key p does, if there are keys.  The tasks come last, those with the most lag first, since
    what exceeds the terminal's height is cut off.
    """
    from rich.console import Group

    totals = status["totals"]
    parts: list[Any] = [text(trouble, "bold red")] if trouble else []
    state = "green" if status["state"] == "RUNNING" else "yellow" if status["restoring"] else "red"
    head = text(status["application_id"], "bold").append_text(text(f"  {status['state_text']} ", f"not bold {state}"))
    for number, (kind, words, _) in enumerate(status["health"]):
        head.append(" · " if number else " ", "not bold").append_text(text(words, f"not bold {_STYLES[kind]}"))
    parts.append(head)
    rates = f"{_rate(totals['in_rate'])} in, {_rate(totals['out_rate'])} out, {totals['processed']:,.0f} processed"
    parts.append(text(f"{rates}, {totals['failures']:,.0f} errors"))
    parts += _plots(status["history"])
    if pause:
        other = "this instance" if status["scope"] == "group" else "all instances"
        parts.append(text(f"q quit  g {other}  p {pause}", "dim"))
    rows: list[tuple[str, ...]]
    if status["restoring"]:
        rows = [(row["task"], f"{row['remaining']:,}", _ms(row["eta_ms"])) for row in status["restoring"][:_ROWS]]
        parts += ["", table("task,records left,ready in", rows, width, "restoring")]
    if status["failures"]:
        rows = [
            (row["node"], f"{row['error']}: {row['message']}", row["place"], f"{row['count']:,}")
            for row in status["failures"][:_ROWS]
        ]
        parts += ["", table("node,error,*where,times", rows, width, "last errors")]
    rows = [
        (row["client"], row["endpoint"], row["error"] or row["state"] or "not asked", f"{row['tasks']:,}")
        for row in status["instances"][:_ROWS]
    ]
    parts += ["", table("instance,*address,state,tasks", rows, width, f"instances: {len(status['instances']):,}")]
    columns = status["tasks"]["columns"]
    tasks = [dict(zip(columns, row, strict=True)) for row in status["tasks"]["rows"]]
    tasks.sort(key=lambda task: (-task["lag"], -task["rate"]))
    threads = [row[0] for row in status["threads"]["rows"]]
    rows = [
        (
            task["task"], threads[task["thread"]], task["state"], f"{task['rate']:,.0f}", f"{task['lag']:,}",
            _ms(task["time_lag_ms"]), _wait(task), f"{task['busy']:.0%}",
        )
        for task in tasks[: max(_TASKS, height)]
    ]  # fmt: skip
    heads = "task,*owner,state,records/s,lag,*event-time lag,*waits for,*busy"
    parts += ["", table(heads, rows, width, f"{len(tasks):,} tasks")]
    return Group(*parts)


def _plots(history: dict[str, Any]) -> list[Any]:
    """Return the last samples of records in, lag and lost records as bars, once there are some."""
    rows = history["rows"][-_SAMPLES:]
    columns = dict(zip(history["columns"], zip(*rows, strict=True), strict=True)) if len(rows) > 1 else {}
    bars = []
    for what, name in (("in", "in_rate"), ("lag", "lag"), ("lost", "lost_rate")):
        values = [value or 0 for value in columns.get(name, ())]
        if most := max(values, default=0):
            line = "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)
            bars.append(text(f"{what:4}  {line}  up to {most:,.0f}{'' if name == 'lag' else '/s'}", "cyan"))
    return bars


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:,.0f}/s"


def _wait(task: dict[str, Any]) -> str:
    """Return for what a task waits: an input, a task upstream, or both; and the tasks that it waits for no more."""
    what = " of ".join(filter(None, (task["waits_for"], task["awaited"] and f"task {task['awaited']}")))
    parts = [f"{what}, {_ms(task['waited_ms'])}"] if what else []
    return "; ".join([*parts, f"no more for {task['passed_over']}"] if task["passed_over"] else parts)


def _ms(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:,.0f} ms" if time_ms < 1000 else f"{time_ms / 1000:,.1f} s"
