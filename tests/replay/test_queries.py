"""SQL over outputs and stores, and expectations of them before anything is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topic
from streams.core.errors import InputError
from streams.replay import ExpectationError, replay
from tests import programs

SCRIPT = """
from streams import Topic

sales = Topic("sales", key=str, value=int)
totals = Topic("of-shops", key=str, value=int)


def topology(builder):
    builder.stream(sales).group_by_key().reduce(lambda one, other: one + other, name="sums").to_stream().to(totals)
"""
sales = Topic("sales", key=str, value=int)
totals = Topic("of-shops", key=str, value=int)
NEGATIVE = 'SELECT key, value FROM "of-shops" WHERE value < 0'


def topology(builder: StreamsBuilder) -> None:
    builder.stream(sales).group_by_key().reduce(lambda one, other: one + other, name="sums").to_stream().to(totals)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    file = tmp_path / "sales.records.jsonl"
    lines = [("a", 3), ("b", 4), ("a", -5), ("b", 1)]
    records = [{"key": key, "value": value, "timestamp": number} for number, (key, value) in enumerate(lines)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def replayed(history: Path) -> Any:
    return replay(topology, {sales: history}, executor="local", application_id="a", partitions=2)


def test_outputs_and_stores_are_tables(history: Path) -> None:
    """Also twice in a query."""
    query = (
        'SELECT o.key, count(*) n, max(s.value) last FROM "of-shops" o JOIN stores.sums s ON o.key = s.key GROUP BY 1'
    )
    with replayed(history) as result:
        assert result.sql(f"{query} ORDER BY 1").to_pylist() == [
            {"key": "a", "n": 2, "last": -2},
            {"key": "b", "n": 2, "last": 5},
        ]
        assert result.sql('SELECT count(*) n FROM "of-shops" a, "of-shops" b').to_pylist() == [{"n": 16}]


@pytest.mark.parametrize(
    ("query", "message"), [("SELCT 1", "SELCT 1: .*yntax"), ("CREATE TABLE t (i INT)", "is not one query")]
)
def test_what_is_no_query_is_refused(history: Path, query: str, message: str) -> None:
    with replayed(history) as result, pytest.raises(InputError, match=message):
        result.sql(query)


def test_names_are_those_of_outputs_and_stores_not_of_variables(history: Path) -> None:
    """An expectation of a table that is not there must not pass."""
    with replayed(history) as result:
        for name in ("table", "outputs"):
            with pytest.raises(InputError, match=rf'"{name}": Catalog Error: Table with name {name} does not exist'):
                result.expect(f'SELECT * FROM "{name}"')


def test_what_is_no_query_is_refused_before_the_replay(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT)
    command = ["replay", "shop.py", "--input", "sales=missing.jsonl", "--executor", "local", "--expect", "SELCT 1"]

    refused = programs.run(["-m", "streams", *command], cwd=tmp_path)

    assert refused.returncode == 2
    assert refused.stderr == 'streams: SELCT 1: Parser Error: syntax error at or near "SELCT"\n'


def test_expectations_that_are_not_met_show_rows(history: Path) -> None:
    with replayed(history) as result:
        result.expect("SELECT * FROM stores.sums WHERE key IS NULL")
        with pytest.raises(ExpectationError, match=r"1 of 2 expectations are not met.*: key=a, value=-2$") as refused:
            result.expect(NEGATIVE, "SELECT * FROM stores.sums WHERE value > 5")
    assert refused.value.failed == {NEGATIVE: 1}


def test_nothing_is_written_if_an_expectation_is_not_met(history: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT)
    command = ["replay", "shop.py", "--input", f"sales={history}", "--executor", "local", "--directory", "work"]
    command += ["--resume", "--output", "of-shops=parquet:lake"]

    refused = programs.run(["-m", "streams", *command, "--expect", NEGATIVE], cwd=tmp_path)

    assert refused.returncode == 2
    assert "1 of 1 expectations are not met: " in refused.stderr
    assert "no output was written, since --expect is not met" in refused.stderr
    assert "completed work is kept; to continue: streams replay" in refused.stderr
    assert not (tmp_path / "lake").exists()
    met = programs.run(
        ["-m", "streams", *command, "--expect", "SELECT * FROM stores.sums WHERE value > 5"], cwd=tmp_path
    )
    assert met.returncode == 0
    assert list((tmp_path / "lake").glob("*.parquet"))
