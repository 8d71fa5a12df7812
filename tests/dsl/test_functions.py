"""How user functions are called, settled when the topology is built."""

import functools
import operator
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from streams.core.errors import TopologyError
from streams.dsl.functions import UNKNOWN, element_type, matching_form, pair_types, result_type

FORMS = ("(value)", "(key, value)")
T = TypeVar("T")


class Callable1:
    def __call__(self, value: int) -> str:
        return str(value)


@pytest.mark.parametrize(
    ("function", "index"),
    [
        (lambda value: value, 0),
        (lambda key, value: value, 1),
        (lambda value, scale=2: value * scale, 0),
        (lambda *arguments: arguments, 0),
        (functools.partial(lambda scale, value: value * scale, 2), 0),
        (str.upper, 0),
        (operator.itemgetter("x"), 0),
        (operator.add, 1),
        (Callable1(), 0),
        (int, 0),
        (len, 0),
    ],
)
def test_the_shortest_form_that_fits_is_called(function: Any, index: int) -> None:
    assert matching_form(function, "map_values", FORMS) == index


def test_a_function_that_fits_no_form_is_named_with_its_place() -> None:
    def three(key: str, value: str, more: str) -> str:
        return key

    with pytest.raises(TopologyError, match=r"map_values: '.*three' \(.*test_functions.py:\d+\) takes .*give a func"):
        matching_form(three, "map_values", FORMS)


@pytest.mark.parametrize("wrong", [None, 1, "text"])
def test_what_is_no_function_is_refused(wrong: Any) -> None:
    with pytest.raises(TopologyError, match=r"filter needs a function of \(key, value\), got"):
        matching_form(wrong, "filter", ("(key, value)",))


def test_an_async_function_is_refused() -> None:
    async def later(value: str) -> str:
        return value

    with pytest.raises(TopologyError, match="is async"):
        matching_form(later, "map_values", FORMS)


def test_annotations_tell_the_type_of_a_result() -> None:
    def annotated(value: str) -> int:
        return len(value)

    def generic(value: T) -> T:
        return value

    assert result_type(annotated) is int
    assert result_type(float) is float
    assert result_type(lambda value: value) is UNKNOWN
    assert result_type(generic) is UNKNOWN


def test_pairs_and_elements_are_taken_apart() -> None:
    assert pair_types(tuple[str, int]) == (str, int)
    assert pair_types(tuple[str, Any]) == (str, UNKNOWN)
    assert pair_types(tuple[str, ...]) == (UNKNOWN, UNKNOWN)
    assert element_type(list[int]) is int
    assert element_type(Iterable[tuple[str, int]]) == tuple[str, int]
    assert element_type(dict[str, int]) is UNKNOWN
