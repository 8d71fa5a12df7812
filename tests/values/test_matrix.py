"""Each reader makes the same of a value, or each refuses it, in the type that it was written as and in all others."""

from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import EmbeddedBroker
from streams.core.errors import StreamsError
from streams.formats import precision
from tests.values.media import MEDIA, Case, Form, Medium, avro_medium, is_same, outcomes
from tests.values.rule import EXTREMES, RULE, TARGETS, VALUES, Refused, expected
from tests.values.shapes import CLASSES, SHAPES


@pytest.fixture(scope="module")
def media() -> Iterator[dict[str, Medium]]:
    with EmbeddedBroker() as broker, broker.serve_registry("127.0.0.1:0") as server:
        yield {**MEDIA, "avro": avro_medium(server.url)}


#: Faults that are known, as (medium or kind of class, arrival, target), and that the tests pass over.  To be empty.
OPEN = (
    # Of pydantic's models: the row of an envelope is written again, with floats.
    ("debezium", "number", "Decimal"),
)


def is_open(*place: str) -> bool:
    return any(all(map(fnmatchcase, place, entry)) for entry in OPEN)


def verdict(name: str, arrival: str, target: str, form: Form, value: Any, cls: str = "") -> Any:
    """Return the value of the rule, or the class ``Refused``."""
    try:
        return expected(name, cls, arrival, target, form, value)
    except Refused:
        return Refused


def differences(name: str, medium: Medium, arrival: str, target: str, case: Case, folder: Path) -> Iterator[str]:
    """Yield a line for each value that a reader makes another thing of than the rule."""
    if is_open(name, arrival, target) or is_open(case.cls, arrival, target):
        return
    for value, found in zip(case.values, outcomes(medium, case, folder), strict=True):
        wanted = verdict(name, arrival, target, case.form, value, case.cls)
        if arrival == "cell" and value == "":
            # Nothing is there.
            wanted = (
                None
                if case.shape == "optional" and target != "Any"
                else {"str": "", "Any": "", "bytes": b""}.get(target, Refused)
            )
        is_text = target in ("str", "Any") or (case.cls, target) == ("pydantic", "bytes")
        if arrival == "cell" and value == "null" and case.shape == "optional" and not is_text:
            # The text of a null is said by an option.
            wanted = Refused
        is_refused = isinstance(found, StreamsError)
        if is_refused if wanted is Refused else not is_refused and is_same(found, wanted):
            continue
        yield (
            f"{arrival} as {target}: {name} ({case.form.name}, {case.shape} of {case.cls}) makes of {value!r:.60} "
            f"{'' if is_refused else type(found).__name__} {found!r:.200}, and the rule {wanted!r:.80}"
        )


def declared(name: str, target: str, form: Form) -> Any:
    """Return the type of a target; Avro's decimals need digits, those of the writer."""
    if name != "avro" or target != "Decimal":
        return TARGETS[target]
    written = form.type if isinstance(form.type, dict) else {}
    return Annotated[Decimal, precision(38, written.get("scale", 18))]


def table(arrival: str) -> str:
    """Return what the rule makes of the extremes of an arrival in each type, for the message of a failure."""
    lines = []
    for target in TARGETS:
        form = Form("", None, _same)
        made = [value for value in EXTREMES[arrival] if verdict("", arrival, target, form, value) is not Refused]
        lines.append(f"  {arrival} as {target}: {f'the same, of {made!r:.80}' if made else 'refused'}")
    return "\n".join(lines)


def _same(value: Any) -> Any:
    return value


@pytest.mark.parametrize("arrival", RULE)
def test_the_rule_takes_one_of_the_extremes_in_each_type_that_it_names(arrival: str) -> None:
    refused = [target for target in TARGETS if f"as {target}: refused" in table(arrival)]
    assert sorted([*refused, *RULE[arrival]]) == sorted(TARGETS), table(arrival)


@pytest.mark.parametrize("arrival", RULE)
def test_all_readers_make_the_same_of_each_extreme_in_every_type(
    media: dict[str, Medium], arrival: str, tmp_path: Path
) -> None:
    found = []
    for target in TARGETS:
        for name, medium in media.items():
            for form in medium.forms.get(arrival, ()):
                values = [value for value in EXTREMES[arrival] if form.holds(value)]
                assert values, (name, form.name)
                # An empty cell depends on what the type takes.
                shapes = ("alone", "optional") if arrival == "cell" else ("alone",)
                # The classes of pydantic are not read by msgspec, as all others are.
                for shape, cls in product(shapes, ("attrs", "pydantic")):
                    case = Case(form, declared(name, target, form), values, shape, cls)
                    found += differences(name, medium, arrival, target, case, tmp_path)
    assert not found, "\n".join(["", *found, "The rule:", table(arrival)])


@pytest.mark.parametrize("arrival", RULE)
def test_all_readers_make_the_same_of_any_value_in_any_type_within_others(
    media: dict[str, Medium], arrival: str, tmp_path: Path
) -> None:
    @given(
        target=st.sampled_from([*TARGETS]),
        values=st.lists(VALUES[arrival], min_size=1, max_size=8),
        shape=st.sampled_from([*SHAPES]),
        cls=st.sampled_from([*CLASSES]),
    )
    def holds(target: str, values: list[Any], shape: str, cls: str) -> None:
        found = []
        for name, medium in media.items():
            for form in medium.forms.get(arrival, ()):
                if shape in medium.shapes and (held := [value for value in values if form.holds(value)]):
                    case = Case(form, declared(name, target, form), held, shape, cls)
                    found += differences(name, medium, arrival, target, case, tmp_path)
        assert not found, "\n".join(["", *found])

    holds()
