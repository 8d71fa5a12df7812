"""Each example runs alone, from any folder, and prints what its text promises."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import programs

EXAMPLES = Path(__file__).resolve().parents[2] / "topology_examples"


def test_word_count(run_script):
    printed = run_script("01_word_count.py")

    assert "kafka=1 hello=1 kafka=2" in printed
    assert "kafka      ### 3" in printed


def test_sessions_grow_and_merge(run_script):
    """The last line lies between two sessions: both are deleted, one of four requests is written."""
    blocks = run_script("02_sessions.py").split("...")

    assert [line.split() for line in blocks[-1].splitlines() if line][-1][-2:] == ["4", "requests"]
    assert blocks[-1].count("deleted") == 2


def test_status_writes_closed_windows_once(run_script):
    printed = run_script("03_status.py").splitlines()

    assert "10:15-11:15  4xx  ## 2" in printed
    assert "10:00-11:00  4xx  ## 2" in printed
    assert len(printed) == len({line.split("  ")[0] + line.split("  ")[1] for line in printed})


def test_weather_joins_all_that_lie_together(run_script):
    printed = run_script("04_weather.py").splitlines()[1:]

    assert len(printed) == 7
    assert "2013-01-01  06:00  39.02  06:00  39.02  06:00  39.92" in printed


def test_orders_keep_the_customer_of_their_time(run_script):
    assert run_script("05_orders.py").splitlines() == [
        "order 1  c1   12.50  Ada, London",
        "order 2  c2    9.90  unknown, ?",
        "order 3  c1    4.00  Ada, Paris",
    ]


def test_timer_reports_each_silence_once(run_script):
    assert run_script("06_timer.py").splitlines() == [
        "minute  6: garden has been silent for 5 minutes",
        "minute  7: cellar has been silent for 5 minutes",
    ]


def test_calendar_has_days_of_23_and_25_hours_and_repeated_hours(run_script):
    assert run_script("16_calendar.py").splitlines() == [
        "Berlin     2026-03-29 00:00 +0100 to 30 00:00 +0200  46",
        "Berlin     2026-10-25 00:00 +0200 to 26 00:00 +0100  50",
        "Copenhagen 2026-03-29 03:00 +0200 to 30 02:00 +0200  46",
        "Sydney     2026-04-05 00:00 +1100 to 06 00:00 +1000  50",
        "Sydney     2026-10-04 00:00 +1000 to 05 00:00 +1100  46",
        "Kolkata    2026-03-29 00:00 +0530 to 30 00:00 +0530  48",
        "New York   2026-03-08 01:00 -0500 to 08 03:00 -0400   2",
        "New York   2026-11-01 01:00 -0400 to 01 01:00 -0500   2",
        "New York   2026-11-01 01:00 -0500 to 01 02:00 -0500   2",
    ]


def test_top_n_ranks_a_closed_hour(run_script):
    assert run_script("07_top_n.py").splitlines()[1:] == [
        "  1. /            ### 3",
        "  2. /blog/       ## 2",
        "  3. /projects/   # 1",
    ]


def test_leader_election_does_each_step_once(run_script):
    assert run_script("10_leader_election.py").splitlines() == [
        "anna: close the books",
        "anna is stopped",
        "ben: make the statement",
        "ben: send it",
        "3 steps, each done once, by 2 instances in turn",
    ]


def test_shared_tasks_stick(run_script):
    printed = run_script("11_shared_tasks.py")

    assert "round_robin, cleo is there: 4 of 7 have moved to another instance" in printed
    assert "sticky, cleo is there: 2 of 7 have moved to another instance" in printed
    assert "sticky, anna has left: 0 of 7 have moved to another instance" in printed


def test_member_numbers_share_out_all_accounts(run_script):
    assert run_script("12_member_number.py").splitlines() == [
        "three instances",
        "  0 of 3: 102 105 108 111",
        "  1 of 3: 100 103 106 109",
        "  2 of 3: 101 104 107 110",
        "one has crashed",
        "  0 of 2: 100 102 104 106 108 110",
        "  1 of 2: 101 103 105 107 109 111",
    ]


def test_parallel_workers_keep_each_customers_order(run_script):
    printed = run_script("13_parallel_workers.py").splitlines()

    assert printed[:2] == ["customer 0: 0 10 20 30 40 50", "customer 1: 1 11 21 31 41 51"]
    assert printed[10:] == [
        "59 handled, 34 attempts failed, 1 given up",
        "refused: customer 3: order 13 was refused",
    ]


def commit(folder: Path, name: str, author: str, date: str, lines: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("line\n" * lines)
    settings = ["-c", "user.name=somebody", "-c", "user.email=s@example.com", "-c", "commit.gpgsign=false"]
    for command in (["add", "."], ["commit", "-q", "-m", name, f"--author={author} <a@example.com>", f"--date={date}"]):
        subprocess.run(["git", *settings, *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Four commits by two authors; the third in the log is the oldest."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, capture_output=True)
    commit(folder, "docs/ä guide.md", "Ada", "2026-03-02T10:00:00+0100", 10)
    commit(folder, "src/a.py", "Ada", "2026-03-02T12:30:00+0100", 20)
    commit(folder, "src/b.py", "Bob", "2026-01-01T00:00:00+0000", 30)
    commit(folder, "README.md", "Ada", "2026-03-02T11:00:00+0100", 5)
    return folder


def test_git_activity_takes_commits_out_of_order(run_script, repository):
    """Ada's last commit in the log lies between her first two, and makes one session of them."""
    printed = run_script("08_git_activity.py", cwd=repository)

    assert "4 commits, 1 older than the one before, 2 sessions of work" in printed
    ada = next(line.split() for line in printed.splitlines() if "Ada" in line)
    assert ada == ["Ada", "2026-03-02", "09:00", "2.5", "h", "3", "commits", "35", "lines"]
    churn = {line.split()[0]: line.split()[-2] for line in printed.splitlines() if " from " in line}
    assert churn == {"src": "30", "docs": "10", ".": "5"}


def test_git_activity_as_a_run(run_script, run_stream, table_of, repository, tmp_path):
    file = tmp_path / "commits.jsonl"
    run_script("08_git_activity.py", "--commits", file, cwd=repository)

    found = run_stream("08_git_activity.py", {"commits": file}, ["sessions", "churn"], partitions=3)

    work = {key[0]: value for key, value in table_of(found["sessions"]).items()}
    assert work == {"Ada": {"commits": 3, "lines": 35}, "Bob": {"commits": 1, "lines": 30}}
    assert len(table_of(found["churn"])) == 4 * 7, "every change lies in seven windows of seven days"


def test_git_activity_without_a_repository_says_so(tmp_path):
    done = programs.run([str(EXAMPLES / "08_git_activity.py"), str(tmp_path / "missing")])

    assert done.returncode == 1
    assert "no git history" in done.stderr
    assert "Traceback" not in done.stderr


def test_orders_as_a_run(run_stream, tmp_path):
    """Both files are read at once; a customer is there before the order that came later."""
    (tmp_path / "customers.jsonl").write_text(
        '{"id": "c1", "name": "Ada", "city": "London", "since": "2026-03-01T00:00:00Z"}\n'
        '{"id": "c1", "name": "Ada", "city": "Paris", "since": "2026-03-04T00:00:00Z"}\n'
    )
    (tmp_path / "orders.csv").write_text(
        "number,customer,cents,at\n1,c1,1250,2026-03-02T00:00:00Z\n2,c2,990,2026-03-03T00:00:00Z\n"
        "3,c1,0,2026-03-03T00:00:00Z\n4,c1,400,2026-03-05T00:00:00Z\n"
    )
    files = {"customers": tmp_path / "customers.jsonl", "orders": tmp_path / "orders.csv"}

    rows = run_stream("05_orders.py", files, ["invoices"], partitions=3)["invoices"]

    cities = {row["value"]["number"]: row["value"]["city"] for row in rows}
    assert cities == {1: "London", 2: None, 4: "Paris"}


def test_word_count_as_a_run(run_stream, table_of, tmp_path):
    (tmp_path / "lines.txt").write_text("to be or not to be\n\nthat is the question\n" * 50)

    rows = run_stream("01_word_count.py", {"lines": tmp_path / "lines.txt"}, ["counts"], partitions=3)["counts"]

    assert len(rows) == 500
    assert table_of(rows) == {"to": 100, "be": 100, **dict.fromkeys(("or", "not", "that", "is", "the", "question"), 50)}


def test_timer_as_a_run(run_stream, tmp_path):
    """Two partitions have two stream times: a device is silent by the time of those beside it."""
    minutes = [("a", minute) for minute in range(30)] + [("b", 0)]
    lines = [
        f'{{"key": "{key}", "value": 1.5, "timestamp": {minute * 60_000}, "partition": 0}}\n'
        for key, minute in sorted(minutes, key=lambda item: item[1])
    ]
    (tmp_path / "readings.records.jsonl").write_text("".join(lines))

    rows = run_stream("06_timer.py", {"readings": tmp_path / "readings.records.jsonl"}, ["silences"], partitions=2)

    assert [(row["key"], row["value"], row["timestamp"]) for row in rows["silences"]] == [("b", 300_000, 300_000)]
