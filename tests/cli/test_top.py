"""``streams top``: the status of a running application in a terminal."""

import fcntl
import io
import json
import os
import re
import signal
import struct
import termios
from contextlib import contextmanager

import pytest

from streams.cli.commands.top import screen
from streams.cli.program import main
from tests import programs
from tests.web.conftest import broker, processed, running, send, until, words  # noqa: F401


def test_a_status_is_printed_as_json_and_as_tables(broker, capsys):  # noqa: F811
    with running(broker) as streams, streams.serve() as server:
        send(broker, words, [("a", "x"), ("b", "[bold]\x1b[31m")])
        until(lambda: processed(streams) == 2)

        assert main(["top", "--http", server.url, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["totals"]["processed"] == 2
        assert main(["top", "--http", server.url.removeprefix("http://"), "--group"]) == 0

    out = capsys.readouterr().out
    assert "4 tasks" in out
    assert "0_3" in out
    assert "2 processed" in out


def test_messages_are_shown_as_text_only(broker):  # noqa: F811
    with running(broker) as streams, streams.serve() as server:
        from rich.console import Console

        from streams.web.peers import Peers
        from streams.web.status import Status

        status = Status(streams.instance, Peers()).of_instance()
        assert server.url
    failure = {"node": "n", "error": "E", "message": "[red]no\x1b[2Jtag", "place": "", "count": 1}
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(screen(status | {"failures": [failure]}, 160))

    shown = console.export_text()
    assert "E: [red]no [2Jtag" in shown
    assert "\x1b" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "is the application running?"), ("ftp://x", "expected an address")],
)
def test_an_address_without_an_application_is_refused(capsys, address: str, message: str):
    assert main(["top", "--http", address]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


# --- in a terminal ------------------------------------------------------------------------


#: A sequence that sets a color.
COLORS = rb"\x1b\[(?:[0-9]+;)*(?:3[0-9]|4[0-9]|9[0-7])(?:;[0-9]+)*m"


class Terminal:
    """A terminal with ``streams top``: what it shows, and keys and sizes to give it."""

    def __init__(self, descriptor, process):
        self.descriptor = descriptor
        self.process = process
        self.bytes = b""

    def resize(self, columns, rows=24):
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, key):
        os.write(self.descriptor, key)

    def frames(self):
        """The lines of each complete picture of the screen, without colors."""
        parts = self.bytes.decode(errors="replace").split("\x1b[H")[1:]
        return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part).splitlines() for part in parts]

    def until(self, is_so):
        """Read until the last picture satisfies a condition; return it."""
        while True:
            for frame in self.frames()[-1:]:
                if is_so("\n".join(frame)):
                    return frame
            self.bytes += os.read(self.descriptor, 65536)

    def end(self):
        """Read until the program has ended; return its exit status."""
        try:
            while chunk := os.read(self.descriptor, 65536):
                self.bytes += chunk
        except OSError:  # The other end is closed.
            pass
        return self.process.wait(300)


@contextmanager
def terminal(url, *arguments, columns=120, **environment):
    ours, theirs = os.openpty()
    try:
        env = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = programs.start(
            ["-m", "streams", "top", "--http", url, *arguments],
            env=env | {"TERM": "xterm-256color", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        yield Terminal(ours, process)
        assert process.poll() is not None
    finally:
        process.kill()
        os.close(ours)


def test_a_terminal_shows_new_numbers_at_its_size_until_q(broker):  # noqa: F811
    with running(broker) as streams, streams.serve() as server, terminal(server.url) as shown:
        frame = shown.until(lambda text: "waits for" in text)
        assert max(map(len, frame)) <= 120
        send(broker, words, [("a", "x")] * 7)
        shown.until(lambda text: "7 processed" in text)

        shown.resize(40)
        frame = shown.until(lambda text: "records/s" in text and "waits for" not in text)
        assert max(map(len, frame)) <= 40
        assert len(frame) <= 24
        shown.resize(100)
        shown.until(lambda text: "waits for" in text)

        shown.press(b"x")
        shown.press(b"q")
        assert shown.end() == 0
    # The former content of the terminal is shown again, with its cursor.
    assert shown.bytes.rfind(b"\x1b[?1049l") > shown.bytes.rfind(b"\x1b[?1049h")
    assert b"\x1b[?25h" in shown.bytes


def test_keys_change_to_all_instances_and_hold_the_numbers(broker):  # noqa: F811
    with running(broker) as streams, streams.serve() as server, terminal(server.url) as shown:
        frame = shown.until(lambda text: "g all instances  p pause" in text)
        # The sentence of the page comes first.
        assert "RUNNING" in frame[0]
        assert "1 instance, 4 tasks · up to date" in frame[0]

        shown.press(b"g")
        shown.until(lambda text: "g this instance" in text)
        shown.press(b"p")
        shown.until(lambda text: "p paused" in text)
        shown.press(b"q")
        assert shown.end() == 0


@pytest.mark.slow
def test_ctrl_c_ends_it_like_q(broker):  # noqa: F811
    with running(broker) as streams, streams.serve() as server, terminal(server.url) as shown:
        shown.until(lambda text: "4 tasks" in text)
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 0


@pytest.mark.slow
def test_an_application_that_restarts_is_shown_again(broker):  # noqa: F811
    with running(broker) as streams:
        server = streams.serve()
        address = server.url.removeprefix("http://")
        with terminal(server.url) as shown:
            shown.until(lambda text: "4 tasks" in text)
            server.close()
            shown.until(lambda text: "no status from there" in text)
            with streams.serve(address):
                shown.until(lambda text: "no status from there" not in text)
            shown.press(b"q")
            assert shown.end() == 0
    assert re.search(COLORS, shown.bytes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"})], ids=["option", "environment"]
)
def test_colors_are_left_out_when_asked(broker, arguments, environment):  # noqa: F811
    with running(broker) as streams, streams.serve() as server:
        with terminal(server.url, *arguments, **environment) as shown:
            shown.until(lambda text: "4 tasks" in text)
            server.close()
            shown.until(lambda text: "no status from there" in text)
            shown.press(b"q")
            assert shown.end() == 0
    assert not re.search(COLORS, shown.bytes)
