"""All development cases: what Kafka Streams 4.2.0 answered, record for record."""

from pathlib import Path

import pytest

from tests.conformance.cases import read_cases
from tests.conformance.pool import judge_all

_FILES = sorted(Path(__file__).with_name("cases").glob("*.jsonl.gz"))


@pytest.mark.case
@pytest.mark.parametrize("is_generated", [False, True])
def test_every_case_gives_what_kafka_streams_gave(is_generated: bool) -> None:
    cases = [case for path in _FILES if ("generated" in path.name) == is_generated for case in read_cases(path)]

    failures = [f"{case.name}: {why}" for case, why in judge_all(cases, jobs=2) if why is not None]

    assert cases
    assert not failures, f"{len(failures)} of {len(cases)} cases fail:\n" + "\n".join(failures)
