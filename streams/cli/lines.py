"""Lines of the program on standard error: what it says, its log, and the error that ends it.

For people they begin with ``streams:``. Lines of the log of a service have time, level and component, as text or JSON.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streams.core.clock import SystemClock

#: The forms of the log of a service.
FORMS = ("text", "json")
#: The form of this process, None for that for people.
_form: str | None = None
_COMPONENT = "streams.cli"


@contextmanager
def formed(form: str | None) -> Iterator[None]:
    """Write lines in this form within the ``with`` block."""
    global _form
    before = _form
    _form = form
    try:
        yield
    finally:
        _form = before


def say(text: str) -> None:
    """Tell the person at the terminal, and the log of a service if it is JSON."""
    if _form == "json":
        log_line("INFO", _COMPONENT, text)
    else:
        print(f"streams: {text}", file=sys.stderr, flush=True)


def log_line(level: str, component: str, text: str, trace: str = "") -> None:
    """Write a line of the log, behind the traceback of its error if there is one."""
    # Not at the top: most commands write no line.
    from streams.core.event_time.time_texts import time_text

    time = time_text(SystemClock().now_ms())
    if _form == "json":
        fields = {"time": time, "level": level, "component": component, "message": text, "traceback": trace}
        line = json.dumps({name: value for name, value in fields.items() if value}, ensure_ascii=False)
    else:
        line = f"{trace}streams: {text}" if _form is None else f"{trace}{time} {level} {component}: {text}"
    print(line, file=sys.stderr, flush=True)


def fail(text: str, trace: str = "", *, is_mistake: bool = False) -> None:
    """Write the error that ends the program; a mistake is told to the person who made it."""
    with formed(None if is_mistake and _form == "text" else _form):
        log_line("ERROR", _COMPONENT, text, trace)
