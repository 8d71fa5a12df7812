"""Inputs, working folder, outputs and snapshot of a replay in an object store, and a replay that is killed there."""

import logging
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.replay.storage.places import Place
from tests import programs
from tests.s3 import SHOP, Bucket, expected_totals, s3_bucket

#: The application kills itself once, at the first row of the third file.
_DEADLY = SHOP.replace(
    "    pass",
    """
    import os, signal
    from pathlib import Path
    if order["number"] == 200 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
""",
)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket("shop") as found:
        found.write_history()
        yield found


@pytest.mark.slow
def test_a_replay_is_killed_and_resumed(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_DEADLY)
    command = ["-m", "streams", "replay", "shop.py", "--executor", "local", "--partitions", "2", "--slices", "36"]
    command += ["--input", f"orders={bucket.uri}/history", "--directory", f"{bucket.uri}/work"]
    command += ["--output", f"totals=parquet:{bucket.uri}/totals", "--snapshot", f"{bucket.uri}/snapshot"]

    killed = programs.run(command, cwd=tmp_path, env=os.environ)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any(name.endswith("MANIFEST.json") for name in bucket.names("work"))
    resumed = programs.run([*command, "--resume"], cwd=tmp_path, env=os.environ)

    assert resumed.returncode == 0, resumed.stderr
    # Ten slices share calls; how many are done depends on how far the other partition was when this one was killed.
    assert re.search(r"\d+ slices? (was|were) done before and skipped", resumed.stderr)
    assert bucket.totals("totals") == expected_totals()
    shown = programs.run(
        ["-m", "streams", "snapshot", "verify", f"{bucket.uri}/snapshot"], cwd=tmp_path, env=os.environ
    )
    assert shown.returncode == 0, shown.stderr
    assert "whole" in shown.stdout
    again = programs.run([*command, "--resume"], cwd=tmp_path, env=os.environ)
    assert again.returncode == 0, again.stderr
    assert bucket.totals("totals") == expected_totals()


@pytest.mark.case
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("shop/nothing", "there is no such file"),
        ("no-such-bucket/history", "no-such-bucket/history"),
    ],
)
def test_what_is_missing_is_named(bucket: Bucket, tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    command = ["-m", "streams", "replay", "shop.py", "--executor", "local", "--input", f"orders=s3://{path}"]

    run = programs.run(command, cwd=tmp_path, env=os.environ)

    assert run.returncode in (1, 2)
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_a_small_file_is_few_requests(bucket: Bucket) -> None:
    requests: list[str] = []

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            requests.append(record.getMessage().partition('"')[2].partition(" ")[0])

    log = logging.getLogger("werkzeug")
    handler = Noted()
    place = Place(f"{bucket.uri}/few/file.json")
    place.write(b"first")  # Whatever the connection needs.
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        place.write(b"content")
        assert Counter(requests) == {"PUT": 1}
        requests.clear()
        assert place.read_if_exists() == b"content"
        assert len(requests) <= 2
        requests.clear()
        assert Place(f"{bucket.uri}/few/none.json").read_if_exists() is None
        assert len(requests) <= 2
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.WARNING)
