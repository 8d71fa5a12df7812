"""What a state directory knows of the files that were read into its topics."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import define, field

from streams import Topic
from streams.core.errors import InputError
from streams.files import Ledger, open_input

WORDS = Topic("words", value=dict[str, str])


@define
class Days:
    """Runs over one state directory, one file each; ``log`` is the topic, by partition."""

    folder: Path
    partitions: int = 2
    log: list[list[str]] = field(init=False)
    said: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.log = [[] for _ in range(self.partitions)]

    def write(self, name: str, *words: str) -> None:
        path = self.folder / name
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"word": list(words)}), path)
        elif name.endswith(".csv"):
            path.write_text("\n".join(["word", *words, ""]))
        else:
            text = "".join(json.dumps({"word": word}) + "\n" for word in words).encode()
            path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    def run(self, name: str, *, is_next: bool = False, stop_after: int | None = None) -> list[str]:
        """Read a file into the topic as a bounded run does; ``stop_after`` so many records it is killed."""
        self.said.clear()
        ledger = Ledger.open(self.folder, self.said.append)
        reader = ledger.follow("words", open_input(WORDS, self.folder / name), is_next=is_next)
        firsts = reader.begins([len(rows) for rows in self.log])
        have = [len(rows) - first for rows, first in zip(self.log, firsts, strict=True)]
        fresh = []
        for partition, word in self._rows(reader):
            if have[partition] > 0:
                have[partition] -= 1
                continue
            if stop_after is not None and len(fresh) == stop_after:
                break
            self.log[partition].append(word)
            fresh.append(word)
        return fresh

    def _rows(self, reader) -> Iterator[tuple[int, str]]:
        for batch in reader(self.partitions):
            for partition, block in batch:
                for value in block.values:
                    yield partition, json.loads(value)["word"]


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


SUFFIXES = pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".csv", ".parquet"])


@SUFFIXES
def test_a_file_that_has_grown_gives_its_new_rows(days: Days, suffix: str) -> None:
    days.write("a" + suffix, "x", "y", "z")
    days.run("a" + suffix)
    days.write("a" + suffix, "x", "y", "z", "u", "v")

    assert sorted(days.run("a" + suffix)) == ["u", "v"]
    assert days.run("a" + suffix) == []
    assert days.said == []


@SUFFIXES
def test_another_file_gives_all_its_rows(days: Days, suffix: str) -> None:
    days.write("a" + suffix, "x", "y", "z")
    days.write("b" + suffix, "x", "q")
    days.run("a" + suffix)

    assert sorted(days.run("b" + suffix)) == ["q", "x"]
    assert days.said == [f"{days.folder}/b{suffix}: follows on 3 rows of topic 'words'"]


def test_row_numbers_go_on_with_another_file(days: Days) -> None:
    """Rows without a key take turns: the fourth row of two partitions goes to the second, whichever file it is of."""
    days.write("a.jsonl", "0", "1", "2")
    days.write("b.jsonl", "3", "4")

    days.run("a.jsonl")
    days.run("b.jsonl")

    assert days.log == [["0", "2", "4"], ["1", "3"]]


@pytest.mark.parametrize(
    "changed", [["n", "y", "z"], ["x", "y"], [], ["x", "n", "y", "z"], ["x", "y", "n", "u"]], ids=" ".join
)
def test_a_file_that_was_changed_in_what_was_read_is_refused(days: Days, changed: list[str]) -> None:
    days.write("a.jsonl", "x", "y", "z")
    days.run("a.jsonl")
    days.write("a.jsonl", *changed)

    with pytest.raises(InputError, match="its first 3 rows are not the rows that were read from it before"):
        days.run("a.jsonl")


def test_another_header_makes_another_file(days: Days) -> None:
    days.write("a.csv", "x", "y")
    days.run("a.csv")
    (days.folder / "a.csv").write_text("other\nx\ny\n")

    with pytest.raises(InputError, match="its first 2 rows are not the rows"):
        days.run("a.csv")


def test_a_file_read_before_others_brings_nothing_again(days: Days) -> None:
    days.write("a.jsonl", "x", "y")
    days.write("b.jsonl", "z")
    days.run("a.jsonl")
    days.run("b.jsonl")

    assert days.run("a.jsonl") == []


def test_a_file_that_others_have_followed_must_not_grow(days: Days) -> None:
    days.write("a.jsonl", "x")
    days.write("b.jsonl", "z")
    days.run("a.jsonl")
    days.run("b.jsonl")
    days.write("a.jsonl", "x", "y")

    with pytest.raises(InputError, match=r"b\.jsonl was read after it; put its new rows into a separate file"):
        days.run("a.jsonl")


def test_a_grown_file_under_another_name_is_said_to_be_taken_for_one(days: Days) -> None:
    days.write("a.jsonl", "x", "y")
    days.write("moved.jsonl", "x", "y", "z")
    days.run("a.jsonl")

    assert days.run("moved.jsonl") == ["z"]
    assert "its first 2 rows are those that were read of" in days.said[0]
    assert "--next words=" in days.said[0]


def test_next_reads_a_file_whatever_its_name_and_contents(days: Days) -> None:
    days.write("a.jsonl", "x", "y")
    days.run("a.jsonl")

    assert sorted(days.run("a.jsonl", is_next=True)) == ["x", "y"]


@pytest.mark.parametrize("stop_after", [0, 1, 3, 4])
def test_a_killed_run_is_gone_on_with_whatever_it_had_written(days: Days, stop_after: int) -> None:
    days.write("a.jsonl", *"abcde")
    written = days.run("a.jsonl", stop_after=stop_after)

    rest = days.run("a.jsonl")

    assert sorted([*written, *rest]) == list("abcde")


def test_no_file_follows_one_whose_run_was_stopped(days: Days) -> None:
    days.write("a.jsonl", *"abc")
    days.write("b.jsonl", *"xyz")
    days.run("a.jsonl", stop_after=1)

    with pytest.raises(InputError, match="run with that file first"):
        days.run("b.jsonl")

    days.run("a.jsonl")
    assert sorted(days.run("b.jsonl")) == list("xyz")


def test_a_file_whose_run_ended_before_its_first_row_holds_nothing_up(days: Days) -> None:
    """Such as one whose first row is bad: it was the wrong file, and another is given."""
    (days.folder / "a.jsonl").write_text("no JSON\n")
    days.write("b.jsonl", *"xyz")
    days.write("c.jsonl", *"uvw")
    with pytest.raises(InputError, match="not JSON"):
        days.run("a.jsonl")

    assert sorted(days.run("b.jsonl")) == list("xyz")
    with pytest.raises(InputError, match="not JSON"):
        days.run("a.jsonl")
    assert sorted(days.run("c.jsonl")) == list("uvw")
    days.write("c.jsonl", *"uvwx")
    assert days.run("c.jsonl") == ["x"]


def test_a_file_of_whose_rows_the_ledger_lost_the_line_is_not_passed_over(days: Days) -> None:
    days.write("a.jsonl", *"abc")
    days.write("b.jsonl", *"xyz")
    days.write("c.jsonl", *"uvw")
    days.run("a.jsonl")
    days.run("b.jsonl", stop_after=1)
    ledger = days.folder / "inputs.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-5])

    with pytest.raises(InputError, match="run with that file first"):
        days.run("c.jsonl")
    assert len(days.run("b.jsonl")) == 2


def test_a_torn_last_line_is_no_damage(days: Days) -> None:
    """The line was written before its rows, so nothing is known of them that the topic does not say too."""
    days.write("a.jsonl", *"abc")
    days.run("a.jsonl")
    ledger = days.folder / "inputs.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-5])

    assert days.run("a.jsonl") == []
    days.write("a.jsonl", *"abcd")
    assert days.run("a.jsonl") == ["d"]


def test_a_damaged_ledger_is_refused(days: Days) -> None:
    days.write("a.jsonl", *"abc")
    days.run("a.jsonl")
    ledger = days.folder / "inputs.jsonl"
    ledger.write_bytes(b"x" + ledger.read_bytes())

    with pytest.raises(InputError, match=r"inputs\.jsonl:1: is damaged"):
        days.run("a.jsonl")


def test_records_that_no_file_brought_are_not_skipped_and_not_doubled(days: Days) -> None:
    days.log[1] = ["live"]
    days.write("a.jsonl", *"abc")

    with pytest.raises(InputError, match="1 records in the state directory that no file brought"):
        days.run("a.jsonl")

    assert sorted(days.run("a.jsonl", is_next=True)) == list("abc")


def test_a_topic_that_lost_what_a_file_follows_is_refused(days: Days) -> None:
    days.write("a.jsonl", *"abc")
    days.write("b.jsonl", *"xyz")
    days.run("a.jsonl")
    days.run("b.jsonl")
    days.log = [[], []]

    with pytest.raises(InputError, match="which the state directory no longer has"):
        days.run("b.jsonl")
