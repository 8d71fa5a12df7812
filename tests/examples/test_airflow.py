"""The DAG of Airflow runs the commands of the daily job; Airflow itself is not needed for that."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests import programs
from tests.waiting import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide" / "replay.md"


@define
class FakeDag:
    """Takes the place of a DAG: its operators, in the order in which they run."""

    operators: list["FakeOperator"] = field(factory=list)

    def __call__(self, dag_id: str, **_: Any) -> "FakeDag":
        assert dag_id == "shop_daily"
        return self

    def __enter__(self) -> "FakeDag":
        return self

    def __exit__(self, *_: object) -> None: ...

    def operator(self, **given: Any) -> "FakeOperator":
        return FakeOperator(self, given)


@define
class FakeOperator:
    dag: FakeDag
    given: dict[str, Any]

    def __rshift__(self, other: "FakeOperator") -> "FakeOperator":
        self.dag.operators += [self, other]
        return other


def airflow(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeDag:
    """Load the DAG with modules in place of those of Airflow."""
    dag = FakeDag()
    bash = "airflow.providers.standard.operators.bash"
    for name, content in (("airflow.sdk", {"DAG": dag}), (bash, {"BashOperator": dag.operator})):
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:end]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(sys.modules[name]).update(content)
    monkeypatch.setenv("SHOP", str(folder))
    source = ROOT / "docs" / "examples" / "airflow_daily.py"
    exec(compile(source.read_text(), str(source), "exec"), {"__name__": "airflow_daily"})
    return dag


@pytest.mark.slow
def test_each_night_takes_what_is_new_and_repairs_what_was_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import pyarrow.parquet as pq

    shop = GUIDE.read_text().split('```python title="shop.py"\n')[1].split("```")[0]
    (tmp_path / "shop.py").write_text(shop)
    commands = tmp_path / "commands"
    commands.mkdir()
    environment = programs.shell_environment(commands)
    events = tmp_path / "events"
    events.mkdir()
    dag = airflow(monkeypatch, tmp_path)
    nights = [("01", ["2026-11-20T10:00:00Z"]), ("02", ["2026-11-21T10:00:00Z", "2026-11-20T12:00:00Z"])]
    for name, times in nights:
        rows = [{"customer": "ann", "product": "tea", "cents": 640, "at": at} for at in times]
        (events / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        for operator in dag.operators:
            command, folder = operator.given["bash_command"], operator.given["cwd"]
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=WATCHDOG_S
            )
            assert done.returncode == 0, done.stderr

    assert [operator.given["task_id"] for operator in dag.operators] == ["replay", "verify"]
    found = {
        folder.name: sorted(
            value
            for file in folder.iterdir()
            for value in pq.ParquetFile(file).read(["value"]).column("value").to_pylist()
        )
        for folder in (tmp_path / "lake" / "by-day").glob("day=*")
    }
    assert found == {"day=2026-11-20": [1, 2], "day=2026-11-21": [1]}
    assert json.loads((tmp_path / "report.json").read_text())["late_rows"] == []
