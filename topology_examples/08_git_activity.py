"""The activity of a git repository, with `git log` as the stream.

Two answers from one topic of commits: sessions of work per author (commits of one author that lie
at most two hours apart), and churn per folder (lines added and deleted in seven days, every day).
The time is the author's date.  Rebased and cherry-picked commits keep theirs, so a log is seldom in
order; the grace of a year takes what comes late.

    python topology_examples/08_git_activity.py                        # of the repository one stands in
    python topology_examples/08_git_activity.py --commits commits.jsonl  # writes the stream to a file:
    streams run topology_examples/08_git_activity.py --input commits=commits.jsonl --output sessions=- --output churn=-
"""

import argparse
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
from attrs import frozen

from streams import SessionWindows, StreamsBuilder, TimeWindows, Topic, session_windowed, time_windowed

GAP = timedelta(hours=2)
WEEK = timedelta(days=7)
GRACE = timedelta(days=365)


@frozen
class Change:
    """What a commit does to one file; a binary file counts no lines."""

    path: str
    added: int
    deleted: int


@frozen
class Commit:
    """One commit, by its author's date."""

    id: str
    author: str
    time: datetime
    changes: tuple[Change, ...]


@frozen
class Work:
    """What an author did in a session."""

    commits: int
    lines: int


commits = Topic(
    "commits", key=str, value=Commit, timestamp=lambda commit: commit.time, key_from=lambda commit: commit.author
)
sessions = Topic("sessions", key=session_windowed(str), value=Work)
churn = Topic("churn", key=time_windowed(str, WEEK), value=int)


def lines_of(commit: Commit) -> int:
    """Return how many lines a commit adds and deletes."""
    return sum(change.added + change.deleted for change in commit.changes)


def lines_by_folder(commit: Commit) -> list[tuple[str, int]]:
    """Return the lines changed in each top folder; files beside the folders count as `.`."""
    totals: dict[str, int] = {}
    for change in commit.changes:
        head, slash, _ = change.path.partition("/")
        folder = head if slash else "."
        totals[folder] = totals.get(folder, 0) + change.added + change.deleted
    return sorted(totals.items())


def topology(builder: StreamsBuilder) -> None:
    """Follow the authors' sessions and the folders' churn."""
    stream = builder.stream(commits)
    (
        stream.group_by_key()
        .windowed_by(SessionWindows.of(GAP, grace=GRACE))
        .aggregate(
            lambda: Work(0, 0),
            lambda _, commit, work: Work(work.commits + 1, work.lines + lines_of(commit)),
            lambda _, left, right: Work(left.commits + right.commits, left.lines + right.lines),
            name="work",
            value=Work,
        )
        .to_stream()
        .to(sessions)
    )
    (
        stream.flat_map(lambda _, commit: lines_by_folder(commit))
        .group_by_key()
        .windowed_by(TimeWindows.of(WEEK, advance=timedelta(days=1), grace=GRACE))
        .reduce(lambda total, lines: total + lines, name="churn")
        .to_stream()
        .to(churn)
    )


def read_log(folder: Path) -> list[Commit]:
    """Return the commits of the repository that holds ``folder``, oldest first as git lists them.

    Raises:
        OSError: git cannot be started.
        subprocess.CalledProcessError: there is no repository, or it has no commit.
    """
    command = ["git", "-c", "core.quotepath=off", "log", "--reverse", "--no-merges", "--no-renames", "--numstat"]
    done = subprocess.run(
        [*command, "--format=%x1e%H%x1f%an%x1f%aI"], cwd=folder, check=True, capture_output=True, timeout=60
    )
    return list(parse_log(done.stdout.decode(errors="replace")))


def parse_log(text: str) -> Iterator[Commit]:
    """Yield the commits in what `git log` prints; commits dated before 1970 are left out."""
    for part in text.split("\x1e")[1:]:
        head, _, body = part.partition("\n")
        commit, author, date = head.split("\x1f")
        time = datetime.fromisoformat(date)
        if time.timestamp() >= 0:
            yield Commit(commit, author, time, tuple(_changes(body)))


def _changes(body: str) -> Iterator[Change]:
    for line in body.splitlines():
        if line.count("\t") >= 2:
            added, deleted, path = line.split("\t", 2)
            yield Change(path, int(added) if added.isdigit() else 0, int(deleted) if deleted.isdigit() else 0)


def main() -> None:
    """Print the longest sessions and the folders with the most churn."""
    parser = argparse.ArgumentParser(description="Activity of a git repository.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="within the repository (default: here)")
    parser.add_argument("--commits", type=Path, help="write the commits to this file, as the input of `streams run`")
    options = parser.parse_args()
    try:
        history = read_log(options.folder)
    except (OSError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").strip()
        raise SystemExit(f"{options.folder.resolve()}: no git history: {detail}") from error
    if options.commits is not None:
        options.commits.write_bytes(b"".join(msgspec.json.encode(commit) + b"\n" for commit in history))
        return
    report(history)


def report(history: list[Commit]) -> None:
    """Run the topology over commits and print what comes out."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    for commit in history:
        driver.pipe(commits, commit, key=commit.author)
    work = {key: value for key, value in dict(driver.read(sessions)).items() if value is not None}
    late = sum(left.time > right.time for left, right in pairwise(history))
    print(f"{len(history)} commits, {late} older than the one before, {len(work)} sessions of work; the longest:")
    longest = sorted(work.items(), key=lambda item: item[0].window.start_ms - item[0].window.end_ms)
    for (author, window), done in longest[:5]:
        start = datetime.fromtimestamp(window.start_ms / 1000, UTC)
        hours = (window.end_ms - window.start_ms) / 3_600_000
        print(f"  {author:24.24} {start:%Y-%m-%d %H:%M}  {hours:5.1f} h  {done.commits:4} commits {done.lines:8} lines")
    busiest: dict[str, tuple[int, int]] = {}
    for (folder, window), lines in dict(driver.read(churn, tombstones=False)).items():
        busiest[folder] = max(busiest.get(folder, (0, 0)), (lines, window.start_ms))
    print("busiest seven days of each folder:")
    for folder, (lines, start_ms) in sorted(busiest.items(), key=lambda item: -item[1][0])[:8]:
        print(f"  {folder:24.24} from {datetime.fromtimestamp(start_ms / 1000, UTC):%Y-%m-%d}  {lines:8} lines")


if __name__ == "__main__":
    main()
