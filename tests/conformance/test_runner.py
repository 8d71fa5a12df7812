"""The runner: one line per case, totals, exit status, and no case that ends the run."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import judge, read_cases
from tests.conformance.pool import judge_all
from tests.conformance.values import same

CASE: dict[str, Any] = {
    "name": "upper",
    "title": "upper-cases values",
    "features": ["map_values"],
    "config": {},
    "topics": {"in": {"key": "string", "value": "string"}, "out": {"key": "string", "value": "string"}},
    "topology": [
        {"id": "n1", "op": "table", "topic": "in", "key": "string", "value": "string", "store": "s"},
        {"id": "n2", "op": "to_stream", "from": "n1"},
        {"id": "n3", "op": "map_values", "from": "n2", "fn": ["upper"]},
        {"op": "to", "from": "n3", "topic": "out", "key": "string", "value": "string"},
    ],
    "script": [{"pipe": {"topic": "in", "key": "a", "value": "x", "ts": 10, "headers": [["h", None]]}}],
    "read_stores": [{"store": "s", "type": "timestamped_kv"}],
    "expected": {
        "error": None,
        "outputs": {"out": [{"step": 0, "key": "a", "value": "X", "ts": 10, "headers": [["h", None]]}]},
        "stores": {"s": [["a", "x", 10]]},
        "dropped": 0,
    },
}


def _changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    case = copy.deepcopy(CASE)
    change(case)
    return case


def _written(path: Path, *cases: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return str(path)


def test_lines_come_in_file_order_with_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = _changed(lambda case: case.update(name="wrong", topology=[{"op": "nonsense"}]))
    first = _written(tmp_path / "one.jsonl", wrong, CASE)
    second = tmp_path / "two.jsonl.gz"
    second.write_bytes(gzip.compress(json.dumps(CASE).encode()))

    status = main([first, str(second), "--jobs", "2"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAIL wrong: ")
    assert lines[1:] == ["ok upper", "ok upper", "2 passed, 1 failed"]
    assert status == 1


def test_cases_are_chosen_by_prefix_and_feature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = _changed(lambda case: case.update(name="other", features=["table"]))
    path = _written(tmp_path / "cases.jsonl", CASE, other)

    assert main([path, "--only", "up"]) == 0
    assert main([path, "--feature", "table"]) == 0

    assert capsys.readouterr().out.splitlines() == ["ok upper", "1 passed, 0 failed", "ok other", "1 passed, 0 failed"]


@pytest.mark.case
@pytest.mark.parametrize("content", [None, b"{", b'{"title": "no name"}\n', b"\xff\n"])
def test_a_file_that_cannot_be_read_is_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_bytes(content)

    status = main([str(path), _written(tmp_path / "good.jsonl", CASE), "--jobs", "1"])

    assert capsys.readouterr().out.splitlines() == ["ok upper", "1 passed, 0 failed"]
    assert status == 2


def test_partitioner_vectors_count_as_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = {"key_hex": "3231", "murmur2": -973932308, "partition": {"10": 0}}
    wrong = {"key_hex": "3231", "murmur2": -973932308, "partition": {"10": 1}}

    status = main([_written(tmp_path / "some.vectors.jsonl", right, wrong)])

    assert capsys.readouterr().out.splitlines() == [
        "ok murmur2:3231",
        "FAIL murmur2:3231: expected partition 1 of 10, got 0",
        "1 passed, 1 failed",
    ]
    assert status == 1


def test_a_case_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    topology = [
        {"id": "n1", "op": "stream", "topics": ["in"], "key": "string", "value": "string"},
        {"id": "n2", "op": "process", "from": "n1", "fn": ["dup", 1 << 40]},
        {"id": "n3", "op": "process", "from": "n2", "fn": ["swallow"]},
    ]
    hanging = _changed(lambda case: case.update(name="hanging", topology=topology))
    cases = read_cases(Path(_written(tmp_path / "cases.jsonl", hanging, CASE)))

    results = [why for _, why in judge_all(cases, 1, limit_seconds=0.5)]

    assert results == ["hangs: no result after 0.5 s of processor time", None]


def test_the_expectation_itself_passes() -> None:
    assert judge(json.dumps(CASE), is_vector=False) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda expected: expected["outputs"]["out"][0].update(value="x"),
        lambda expected: expected["outputs"]["out"][0].update(key=None),
        lambda expected: expected["outputs"]["out"][0].update(ts=11),
        lambda expected: expected["outputs"]["out"][0].update(step=1),
        lambda expected: expected["outputs"]["out"][0].update(headers=[["h", ""]]),
        lambda expected: expected["outputs"]["out"][0].pop("headers"),
        lambda expected: expected["outputs"]["out"].append(expected["outputs"]["out"][0]),
        lambda expected: expected["outputs"].pop("out"),
        lambda expected: expected["outputs"].update({"peek:p": [{"step": 0, "key": "a", "value": "x"}]}),
        lambda expected: expected["stores"]["s"].append(["b", "x", 10]),
        lambda expected: expected["stores"]["s"].clear(),
        lambda expected: expected["stores"]["s"][0].__setitem__(2, 11),
        lambda expected: expected.update(dropped=1),
        lambda expected: expected.update(error={"phase": "build", "step": None}),
        lambda expected: expected.update(error={"phase": "run", "step": 0}),
        lambda expected: expected.update(describe={"subtopologies": [], "global_stores": []}),
    ],
)
def test_any_other_expectation_fails(change: Callable[[dict[str, Any]], object]) -> None:
    case = _changed(lambda case: change(case["expected"]))

    assert judge(json.dumps(case), is_vector=False) is not None


def test_json_values_differ_by_type() -> None:
    assert same({"a": [1, None]}, {"a": [1, None]})
    assert not same(1, True)
    assert not same([0], [False])
    assert not same("1", 1)
    assert not same(None, 0)
    assert not same({"a": 1}, {"a": 1, "b": None})
    assert same(2.0, 2)
