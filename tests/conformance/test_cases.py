"""All development cases: what Kafka Streams 4.2.0 answered, record for record."""

from pathlib import Path

import pytest

from tests.conformance.cases import read_cases
from tests.conformance.pool import judge_all

_FILES = sorted(Path(__file__).with_name("cases").glob("*.jsonl.gz"))


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if "generated" in path.name else ()) for path in _FILES],
    ids=lambda path: path.name.removesuffix(".jsonl.gz"),
)
def test_every_case_gives_what_kafka_streams_gave(path: Path) -> None:
    cases = read_cases(path)

    failures = [f"{case.name}: {why}" for case, why in judge_all(cases, jobs=2) if why is not None]

    assert cases
    assert not failures, f"{len(failures)} of {len(cases)} cases fail:\n" + "\n".join(failures)
