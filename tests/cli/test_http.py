"""``streams run --http``: an application that answers over HTTP, as typed."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import COUNTS, Program
from tests.cli.test_workers import started
from tests.waiting import WATCHDOG_S, until


def urls(log: Path) -> list[str]:
    return re.findall(r"streams: (http://\S+) serves the live page", log.read_text())


def test_a_live_run_says_where_it_answers_and_asks_for_its_token(tmp_path: Path) -> None:
    folder = tmp_path
    client = httpx.Client(timeout=WATCHDOG_S)
    (folder / "app.py").write_text(COUNTS)
    (folder / "token").write_text("s3cret\n")
    with started(folder, "--http", "0.0.0.0:0", "--http-token-file", str(folder / "token")):
        until(lambda: bool(urls(folder / "said.log")))
        url = urls(folder / "said.log")[0].replace("0.0.0.0", "127.0.0.1")
        token = {"authorization": "Bearer s3cret"}

        assert client.get(f"{url}/ready").status_code == 401
        until(lambda: client.get(f"{url}/ready", headers=token).status_code == 200)
        assert client.get(f"{url}/stores/word-counts/keys/a", headers=token).json()["error"] == "NO_SUCH_KEY"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "0.0.0.0:0"], "give a token, or listen on 127.0.0.1"),
        (["--http", "127.0.0.1:0", "--http-token-file", "two"], "expected one word, the token"),
        (["--http", "127.0.0.1:0", "--input", "words=words.csv"], "--http needs a live run"),
    ],
)
def test_arguments_that_cannot_be_served_are_refused(
    streams: Program, refused: Callable[..., str], arguments: list[str], message: str
) -> None:
    streams.write("two", "two words")
    streams.write("words.csv", "word\na\n")

    assert message in " ".join(refused("run", "counts.py", *arguments).split())
