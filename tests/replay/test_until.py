"""A replay that ends before its history does: its snapshot says how far it is, and nothing is lost behind it."""

import json
from datetime import timedelta

import polars
import pytest
from attrs import fields

from streams import StreamsBuilder, Topic
from streams.cli import main
from streams.core.errors import ConfigError, InputError
from streams.core.settings.settings import Settings
from streams.replay import Plan, ReplayError, Snapshot, replay
from streams.replay.run.request import Keywords
from streams.replay.storage.places import Place

words = Topic("words", key=str, value=dict, timestamp=lambda row: row["at"], key_from=lambda row: row["word"])
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts").to_stream().to(counts)


SCRIPT = """
from streams import StreamsBuilder, Topic

words = Topic("words", key=str, value=dict, timestamp=lambda row: row["at"], key_from=lambda row: row["word"])
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts").to_stream().to(counts)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A script, and its history of 100 words in two files of 50."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting.py").write_text(SCRIPT)
    rows = [json.dumps({"word": f"w{number % 7}", "at": number * 1000}) + "\n" for number in range(100)]
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "1.jsonl").write_text("".join(rows[:50]))
    (tmp_path / "words" / "2.jsonl").write_text("".join(rows[50:]))
    (tmp_path / "rest.jsonl").write_text("".join(rows[30:]))
    return tmp_path


def streams(command: str) -> int:
    return main(command.split())


REPLAY = "replay counting.py --executor local --partitions 2 --input words=words"


def test_offsets_are_those_that_were_reached(folder):
    assert streams(f"{REPLAY} --until 30000 --snapshot early") == 0

    snapshot = Snapshot.open(Place("early"))

    assert sum(snapshot.ends("words").values()) == 30
    assert snapshot.rows("words") == 30


def test_what_comes_behind_the_end_follows_on(folder, capsys):
    assert streams(f"{REPLAY} --until 30000 --snapshot early --output counts=early.records.jsonl") == 0
    assert streams(f"{REPLAY} --output counts=whole.records.jsonl") == 0

    status = streams(
        "run counting.py --from-snapshot early --input words=rest.jsonl --output counts=late.records.jsonl"
    )

    assert status == 0
    assert "follows on 30 rows" in capsys.readouterr().err
    early, late, whole = (
        sorted((folder / f"{name}.records.jsonl").read_text().splitlines()) for name in ("early", "late", "whole")
    )
    assert sorted(early + late) == whole


def test_a_resumed_replay_goes_on_to_the_end(folder):
    assert streams(f"{REPLAY} --until 30000 --snapshot early --output counts=early.records.jsonl") == 0
    assert streams(f"{REPLAY} --output counts=whole.records.jsonl") == 0

    assert streams(f"{REPLAY} --snapshot early --resume --output counts=early.records.jsonl") == 0

    assert (folder / "early.records.jsonl").read_text() == (folder / "whole.records.jsonl").read_text()


def test_history_that_was_read_in_part_is_not_taken_for_what_follows(folder, capsys):
    assert streams(f"{REPLAY} --until 30000 --snapshot early") == 0

    assert streams("run counting.py --from-snapshot early --input words=words/1.jsonl --output counts=-") == 2
    assert "ended within" in capsys.readouterr().err
    assert streams(f"{REPLAY} --state-from early") == 2
    assert "are left is not known" in capsys.readouterr().err


def test_a_replayed_file_is_not_counted_again(folder, capsys):
    assert streams(f"{REPLAY} --snapshot whole") == 0
    run = "run counting.py --from-snapshot whole --state-dir live --output counts=-"

    assert streams(f"{run} --input words=words/2.jsonl") == 2
    assert "words/2.jsonl, which was replayed already; --next words=words/2.jsonl" in capsys.readouterr().err
    corrected = (folder / "words" / "1.jsonl").read_text().replace("w0", "w9")
    (folder / "words" / "1.jsonl").write_text(corrected)
    assert streams(f"{run} --input words=words/1.jsonl") == 2
    assert "a file of this name was replayed already" in capsys.readouterr().err


@pytest.mark.slow
def test_replayed_file_that_others_have_followed_must_not_grow(folder, capsys):
    assert streams("replay counting.py --executor local --input words=words/1.jsonl --snapshot whole") == 0
    run = "run counting.py --from-snapshot whole --state-dir live --output counts=-"
    assert streams(f"{run} --input words=words/2.jsonl") == 0
    assert streams(f"{run} --input words=words/1.jsonl") == 0
    with (folder / "words" / "1.jsonl").open("a") as file:
        file.write('{"word": "new", "at": 100000}\n')

    assert streams(f"{run} --input words=words/1.jsonl") == 2
    assert "has grown, but" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ({"wards": {0: 1}}, "no input has topic 'wards'; the inputs are words"),
        ({"words": {2: 1}}, "topic 'words' has partitions 0 to 1, and not 2"),
        ({"words": {"0": 1}}, "topic 'words' has partitions 0 to 1, and not '0'"),
        ({"words": {0: -1}}, "until -1 of words-0: give an offset"),
        ({"words": 5}, "until 5 of topic 'words': give offsets by partition"),
    ],
)
def test_offsets_that_cannot_be_are_refused(folder, until, message):
    """They ended the replay nowhere: the whole history was read."""
    with pytest.raises(InputError, match=message):
        replay(topology, {words: folder / "words"}, executor="local", partitions=2, until=until)


def test_offsets_end_the_partitions_that_are_given(folder):
    given = {"executor": "local", "partitions": 2}
    with replay(topology, {words: folder / "words"}, **given, until={words: {0: 3, 1: 4}}) as result:
        assert result.records["counts"] == 7


@pytest.mark.parametrize("name", ["partitions", "processes", "keep_states"])
@pytest.mark.parametrize("number", [0, -1, True, "2"])
def test_numbers_of_options_are_whole_and_from_1_on(name, number):
    """With -1 partitions, no record was read, without an error; with 0 processes there was one for each core."""
    with pytest.raises(ConfigError, match=f"{name} {number!r}: give a whole number from 1 on"):
        Plan(**{name: number})


def test_fields_that_only_a_plan_has_are_refused_as_keywords_with_the_plan_that_has_them(folder):
    with pytest.raises(ConfigError, match=r"since is a field of the plan: give plan=Plan\(since=\.\.\.\)"):
        replay(topology, {words: folder / "words"}, since=0)


def test_keywords_are_those_of_the_plan_and_replace_them(folder):
    plan = Plan(executor="local", partitions=3, slices=2)
    with replay(topology, {words: folder / "words"}, plan, partitions=2) as result:
        assert (result.session.request.plan.partitions, result.slices) == (2, 2)
    names = Keywords.__annotations__.keys() - Settings.__annotations__.keys() - {"application_id"}
    assert names < {field.name for field in fields(Plan)}


def test_snapshot_of_a_plan_is_saved_with_the_files_of_the_replay_in_it(folder):
    """A replay that is not resumed begins with an empty folder."""
    plan = Plan(executor="local", partitions=2, slices=2, snapshot=folder / "snapshot")
    for _ in range(2):
        with replay(topology, {words: folder / "words"}, plan) as result:
            assert result.slices_skipped == 0
    with replay(topology, {words: folder / "words"}, plan, resume=True) as result:
        assert result.slices_skipped == 2
    assert Snapshot.open(Place(str(folder / "snapshot"))).inputs
    with pytest.raises(ConfigError, match="snapshot and final_flush exclude each other"):
        replay(topology, {words: folder / "words"}, plan, final_flush=True)


@pytest.mark.parametrize("slices", [timedelta(0), 1.5, True, "0", "-3", b"2"])
def test_slices_are_spans_of_time_or_numbers(folder, slices):
    """It is said before the history is read."""
    with pytest.raises(ConfigError, match=r"slices .*: give a "):
        replay(topology, {words: folder / "words"}, executor="local", slices=slices, directory=folder / "made")
    assert not (folder / "made").exists()


def test_a_snapshot_is_saved_before_the_result_is_closed(folder):
    with replay(topology, {words: folder / "words"}, executor="local") as result:
        pass
    with pytest.raises(ReplayError, match="were deleted when its result was closed; read outputs within the `with`"):
        result.save(folder / "saved")


def test_lazy_table_is_refused_with_a_remedy():
    with pytest.raises(InputError, match=r"not a polars\..*LazyFrame; give what its collect\(\) returns"):
        replay(topology, {words: polars.LazyFrame({"word": ["a"]})}, executor="local")


def test_a_snapshot_never_deletes_files_that_no_replay_has_written(tmp_path):
    (tmp_path / "words.jsonl").write_text('{"word": "a", "at": 1}\n')
    history = {words: tmp_path / "words.jsonl"}
    precious = tmp_path / "mine" / "work" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("of somebody else")

    with pytest.raises(ReplayError, match=r"mine/work: has files that no replay has written; choose another folder"):
        replay(topology, history, executor="local", snapshot=tmp_path / "mine")
    assert precious.read_text() == "of somebody else"

    for _ in range(2):
        with replay(topology, history, executor="local", snapshot=tmp_path / "snapshot") as result:
            assert len(list(result.read(counts))) == 1
