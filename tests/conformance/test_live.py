"""A sample of the cases on the embedded broker: one thread, and the same records."""

import json
from pathlib import Path

import pytest

from tests.conformance.agree import difference_of, has_wall_clock
from tests.conformance.cases import read_cases
from tests.conformance.flow import Agreement
from tests.conformance.live import LivePlayer, live_parts

_FILES = sorted(
    path
    for path in Path(__file__).with_name("cases").glob("*.jsonl.gz")
    if not path.name.startswith(("describe", "partitioner"))
)
#: Of each file at most so many, spread over it.
_OF_A_FILE = 8


def sample(path: Path) -> list[tuple[dict, list]]:
    """Return cases that go to their end and agree with blocks in everything, and their segments."""
    found = []
    for line in read_cases(path):
        case = json.loads(line.line)
        if has_wall_clock(case) or case["expected"].get("error") or (case.get("config") or {}).get("cache_max_bytes"):
            continue
        parts = live_parts(case)
        if parts is not None:
            found.append((case, parts))
    step = max(1, len(found) // _OF_A_FILE)
    return found[::step][:_OF_A_FILE]


@pytest.mark.case(6)
@pytest.mark.seeds("path", _FILES, 9, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_case_gives_the_same_records_on_the_embedded_broker(path):
    failures = []
    for case, parts in sample(path):
        why = difference_of(case, LivePlayer(case, parts).play(), Agreement.EXACT)
        if why is not None:
            failures.append(f"{case['name']}: {why}")

    assert not failures, "\n".join(failures)
