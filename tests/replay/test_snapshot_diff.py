"""Two snapshots and what differs between them, as a person reads it."""

import json
from pathlib import Path

import pytest

from streams.cli import main

SCRIPT = """
from datetime import timedelta

from streams import JoinWindows, SessionWindows, StreamsBuilder, TimeWindows, Topic

events = Topic("events", key=str, value=dict, timestamp=lambda row: row["at"], key_from=lambda row: row["who"])
second = timedelta(seconds=1)


def topology(builder: StreamsBuilder) -> None:
    stream = builder.stream(events)
    by_key = stream.group_by_key()
    by_key.windowed_by(TimeWindows.of(second)).count("windows")
    by_key.windowed_by(SessionWindows.of(second)).count("sessions")
    by_key.reduce(lambda _, new: new, "latest")
    stream.map_values(lambda row: (row["at"], row["who"])).group_by(lambda _, row: row[0]).count("by-lambda")
    stream.join(stream.filter(lambda _, row: True), lambda a, b: None, JoinWindows.of(second), name="join")
"""


@pytest.fixture
def snapshots(tmp_path, monkeypatch):
    """Return what replays rows to a snapshot of a name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(SCRIPT)

    def make(name: str, *rows: tuple[str, int]) -> None:
        lines = [json.dumps({"who": who, "at": at}) + "\n" for who, at in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
        assert main(f"replay app.py --executor local --input events={name}.jsonl --snapshot {name}".split()) == 0

    return make


def test_keys_and_values_are_shown_as_what_they_stand_for(snapshots, capsys):
    snapshots("old", ("ann", 1_000), ("bob", 1_200))
    snapshots("new", ("ann", 1_000), ("ann", 1_500))
    assert Path("old").stat().st_mode & 0o777 == 0o700, "what it shows is for its user alone"
    capsys.readouterr()

    status = main(["snapshot", "diff", "old", "new"])

    said = capsys.readouterr().out.splitlines()
    assert status == 1
    second = "1970-01-01T00:00:01"
    assert [line for line in said if line.startswith("store windows")] == [
        f"store windows, task 0_0: key ann@[{second}Z, 1970-01-01T00:00:02Z) (value 1) became 2 at {second}.500Z",
        f"store windows, task 0_0: key bob@[{second}Z, 1970-01-01T00:00:02Z) (value 1) is gone",
    ]
    assert [line for line in said if line.startswith("store sessions")] == [
        f"store sessions, task 0_0: key ann@[{second}Z, {second}Z] (value 1) is gone",
        f"store sessions, task 0_0: key ann@[{second}Z, {second}.500Z] (value 2) is new",
        f"store sessions, task 0_0: key bob@[{second}.200Z, {second}.200Z] (value 1) is gone",
    ]
    assert [line for line in said if line.startswith("store latest")] == [
        f'store latest, task 0_0: key ann (value {{"at": 1000, "who": "ann"}}) became {{"at": 1500, "who": "ann"}} '
        f"at {second}.500Z",
        'store latest, task 0_0: key bob (value {"at": 1200, "who": "bob"}) is gone',
    ]
    assert [line for line in said if line.startswith("store by-lambda")] == [
        "store by-lambda, task 1_0: key 1200 (value 1) is gone",
        "store by-lambda, task 1_0: key 1500 (value 1) is new",
    ]
    kept = [line for line in said if "JOIN" in line and "bob@[" in line]
    assert [line.endswith('#2 (value {"at": 1200, "who": "bob"}) is gone') for line in kept] == [True, True], said


def test_equal_snapshots_have_no_difference(snapshots, capsys):
    snapshots("old", ("ann", 1_000))
    snapshots("new", ("ann", 1_000))
    capsys.readouterr()

    assert main(["snapshot", "diff", "old", "new"]) == 0
    assert capsys.readouterr().out == "no difference\n"
