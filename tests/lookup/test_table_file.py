"""Look-ups in a file: what is read, when it is read again, and what happens if it cannot be."""

import gzip
import pickle
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streams import ConfigError, Csv, InputError, StreamsBuilder, StreamsError, Topic, TopologyError, VirtualClock
from streams.lookup import FileLookUp
from streams.testing import TopologyTestDriver
from streams.topology import MapValues

ORDERS = Topic("orders", key=str, value=int)
FOUND = Topic("found", key=str, value=str)


def write(path: Path, rows: dict[str, str]) -> None:
    """Write a whole file, as those that replace it should: another one that is renamed."""
    new = path.with_name("new" + path.suffix)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": list(rows), "name": list(rows.values())}), new)
    else:
        new.write_text("id,name\n" + "".join(f"{key},{name}\n" for key, name in rows.items()))
    new.replace(path)


def name_of(name: str | None) -> str | None:
    return name


def opened(path: Path, clock: VirtualClock | None = None) -> FileLookUp[str | None]:
    return FileLookUp(path, key="id", row=name_of, clock=clock or VirtualClock())


@pytest.fixture(params=["countries.parquet", "countries.csv"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / request.param
    write(file, {"01": "Norway", "02": "Italy"})
    return file


def test_rows_are_found_by_key_and_need_neither_calls_nor_stores(path: Path) -> None:
    look_up = opened(path)

    def topology(builder: StreamsBuilder) -> None:
        found = builder.stream(ORDERS).look_up(look_up, by=lambda _, value: f"{value:02}", name="country")
        found.map_pairs(lambda value, country: f"{value} {country}").to(FOUND)

    driver = TopologyTestDriver(topology)
    driver.pipe_all(ORDERS, [("a", 1, 0), ("b", 3, 1)])
    assert driver.read(FOUND) == [("a", "1 Norway"), ("b", "3 None")]
    assert isinstance(driver.topology.nodes["country"].operator, MapValues)  # type: ignore[union-attr]
    assert not driver.topology.stores


def test_changed_file_is_read_when_it_is_the_same_in_two_checks(path: Path) -> None:
    clock = VirtualClock()
    look_up = opened(path, clock)
    write(path, {"01": "Norge"})

    assert look_up("01") == "Norway"
    clock.advance(1_000)
    assert look_up("01") == "Norway"
    clock.advance(999)
    assert look_up("01") == "Norway"
    clock.advance(1)
    assert (look_up("01"), look_up("02")) == ("Norge", None)


def later(look_up: FileLookUp[str | None], clock: VirtualClock) -> str | None:
    for _ in range(2):
        clock.advance(1_000)
        look_up("01")
    return look_up("01")


@pytest.mark.parametrize("damage", ["cut", "gone", "other columns", "key twice", "no key", "column twice"])
def test_file_that_cannot_be_read_keeps_the_rows_and_says_so_once(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    look_up = opened(path, clock)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-8] if path.suffix == ".parquet" else b"id,name\n01,Norge\n02")
    elif damage == "gone":
        path.unlink()
    else:
        names = {
            "other columns": ["id", "title"],
            "key twice": ["id", "name"],
            "no key": ["code", "name"],
            "column twice": ["name", "name"],
        }[damage]
        rows = [["01", "Norge"], ["01" if damage == "key twice" else "02", "Italia"]]
        if damage == "column twice":
            names, rows = ["id", *names], [["0", *row] for row in rows]
        if path.suffix == ".parquet":
            columns = [list(column) for column in zip(*rows, strict=True)]
            pq.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=names), path)
        else:
            path.write_text("\n".join(",".join(row) for row in [names, *rows]))

    for _ in range(3):
        assert later(look_up, clock) == "Norway"
    (record,) = caplog.records
    assert "the previous rows remain in use until the file changes again" in record.getMessage()
    assert path.name in record.getMessage()

    write(path, {"01": "Norge"})
    assert later(look_up, clock) == "Norge"


def test_file_that_cannot_be_read_at_first_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv: there is no such file"):
        opened(tmp_path / "none.csv")


def test_text_that_is_not_utf8_is_an_error_and_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("id,name\n01,Århus\n".encode("latin-1"))
    with pytest.raises(
        InputError, match=r"latin.csv:2: byte 0xc5 is not UTF-8; .* or file_format=.csv.encoding=latin-1. in code"
    ):
        opened(tmp_path / "latin.csv")


@pytest.mark.parametrize(
    ("name", "file_format", "content"),
    [
        ("a.csv", Csv(delimiter=";", encoding="latin-1", null="-"), "id;name\n01;\xc5rhus\n02;-\n".encode("latin-1")),
        ("a.dat", "csv?columns=id,name&null=-", "01,\xc5rhus\n02,-\n".encode()),
        ("a.csv.gz", "csv?null=-", gzip.compress("id,name\n01,\xc5rhus\n02,-\n".encode(), mtime=0)),
        ("a.json", "", '[{"id": "01", "name": "\xc5rhus"}, {"id": "02", "name": null}]'.encode()),
        ("a.ndjson", "", '{"id": "01", "name": "\xc5rhus"}\n{"id": "02", "name": null}\n'.encode()),
    ],
)
def test_files_of_other_formats_and_dialects(tmp_path: Path, name: str, file_format: Any, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    look_up = FileLookUp(tmp_path / name, key="id", row=name_of, file_format=file_format)

    look_up = pickle.loads(pickle.dumps(look_up))
    assert (look_up("01"), look_up("02")) == ("\xc5rhus", None)
    with pytest.raises(ConfigError, match=r"no option 'delim': did you mean 'delimiter'"):
        FileLookUp(tmp_path / name, key="id", row=name_of, file_format="csv?delim=;")


def test_look_up_is_pickled_by_its_path(path: Path) -> None:
    look_up = FileLookUp(path, key="id", row=name_of)
    assert pickle.loads(pickle.dumps(look_up))("01") == "Norway"


@pytest.mark.parametrize("option", ["cache", "ttl", "retries"])
def test_options_without_effect_are_refused(path: Path, option: str) -> None:
    options: Any = {option: 1}
    with pytest.raises(TopologyError, match=rf"has all its answers in memory, so that {option}= has no effect"):
        StreamsBuilder().stream(ORDERS).look_up(opened(path), **options)


async def _name_later(name: str) -> str:
    return name


def _of_unknown(name: "Unknown") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": 1}, "check must be a timedelta of 0 or more, not 1"),
        ({"check": timedelta(-1)}, "check must be a timedelta of 0 or more"),
        ({"row": _of_unknown}, "row= of FileLookUp.*: its types cannot be read: name 'Unknown' is not defined"),
        ({"row": _name_later}, "row= of FileLookUp.*is async"),
    ],
)
def test_wrong_options_are_refused(path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FileLookUp(path, **{"key": "id", "row": name_of, **options})


def test_key_of_another_type_than_those_of_the_file_is_an_error_and_not_unknown(path: Path) -> None:
    look_up = opened(path)
    assert look_up("1") is None
    with pytest.raises(StreamsError, match="has keys of type str, so 1 of type int cannot be found: convert it with"):
        look_up(1)


def numbered(id: int, name: str) -> str:  # noqa: A002 - the name of a column.
    return name


def test_numbers_of_other_types_are_looked_up_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("id,name\n1,one\n")
    look_up = FileLookUp(path, key="id", row=numbered)
    assert (look_up(1), look_up(1.0), look_up(2.5)) == ("one", "one", None)


@attrs.frozen
class Rate:
    day: date
    rate: Decimal
    code: str
    note: str | None = "none"


RATES = {
    "rates.csv": b"day,rate,code,other\n2026-01-31,1.10,007,x\n",
    "rates.json": b'[{"day": "2026-01-31", "rate": 1.10, "code": "007"}]',
    "rates.ndjson": b'{"day": "2026-01-31", "rate": "1.10", "code": "007"}\n',
    "code=007/rates.csv": b"day,rate\n2026-01-31,1.10\n",
}


@pytest.mark.parametrize("name", [*RATES, "rates.parquet"])
def test_columns_are_read_as_the_types_of_the_parameters(tmp_path: Path, name: str) -> None:
    """``1.10`` is no float, ``007`` no number, and a column that is missing is the default of its parameter."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if name in RATES:
        path.write_bytes(RATES[name])
    else:
        pq.write_table(pa.table({"day": [date(2026, 1, 31)], "rate": [Decimal("1.10")], "code": ["007"]}), path)

    for where in (path, path.parent, tmp_path / "**" / "rates.*"):
        look_up = FileLookUp(where, key="day", row=Rate)
        assert look_up(date(2026, 1, 31)) == Rate(date(2026, 1, 31), Decimal("1.10"), "007")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n.csv", "id,name\n1.5,a\n", r"n.csv:2: expected an integer, got '1.5' - at .*id.*; correct it"),
        ("n.csv", "id,Name\n1,a\n", "column 'name' is missing; rename 'Name'"),
        ("n.csv", "id;name\n1;a\n", r'give "csv:.*n.csv\?delimiter=;" as the input, or file_format="csv\?delimiter=;"'),
        ("n.json", '[{"id": "1", "name": "a"}]', r"expected `int`, got `str`"),
        ("n.csv", "id,name\n1,a\n01,b\n", "n.csv, row 2: has the key 1, as an earlier row"),
        ("n.dat", "id,name\n1,a\n", r"its suffix is not of a known kind"),
    ],
)
def test_what_is_no_such_table_is_refused_by_the_rules_of_files(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        FileLookUp(tmp_path / name, key="id", row=numbered)


def test_folder_that_cannot_be_read_keeps_the_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, clock = tmp_path / "data", VirtualClock()
    folder.mkdir()
    write(folder / "countries.csv", {"01": "Norway"})
    look_up = opened(folder / "countries.csv", clock)
    folder.rename(tmp_path / "moved")
    folder.write_text("a file")

    assert later(look_up, clock) == "Norway"
    assert "the previous rows remain in use" in caplog.text


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json_is_read_as_it_is(tmp_path: Path, suffix: str) -> None:
    """The first object need not have all fields; numbers and objects are those of their own row."""
    rows = [
        '{"id":"a","n":1}',
        '{"id":"b","n":1.5,"more":{"x":1}}',
        '{"id":"c","n":1180591620717411303424,"more":{"y":2}}',
    ]
    text = "\n".join(rows) if suffix == "jsonl" else f"[{','.join(rows)}]"
    (tmp_path / f"t.{suffix}").write_text(text)

    table: FileLookUp[Any] = FileLookUp(tmp_path / f"t.{suffix}", key="id", row=dict)

    expected = [{"n": 1}, {"n": 1.5, "more": {"x": 1}}, {"n": 2**70, "more": {"y": 2}}]
    assert repr([table(key) for key in "abc"]) == repr(expected)
