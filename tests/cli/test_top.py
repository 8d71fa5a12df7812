"""``streams top``: the status of a running application in a terminal."""

import io
import json

import pytest

from streams.cli.program import main
from streams.cli.top import screen
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
    console.print(screen(status | {"failures": [failure]}))

    shown = console.export_text()
    assert "E: [red]no [2Jtag" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "is the application running?"), ("ftp://x", "expected an address")],
)
def test_an_address_without_an_application_is_refused(capsys, address: str, message: str):
    assert main(["top", "--http", address]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
