"""Which functions are refused because nobody would run them to their end."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from streams.core.errors import ConfigError, TopologyError, UnawaitedError
from streams.core.user_code import CheckedFunction, located, refuse_result, refuse_unawaited


async def later(*arguments: object) -> bool:
    return True


def items(*arguments: object) -> Iterator[object]:
    yield from arguments


async def later_items(*arguments: object) -> AsyncIterator[object]:
    for argument in arguments:
        yield argument


def plain(*arguments: object) -> bool:
    return True


class Later:
    async def __call__(self, *arguments: object) -> bool:
        return True

    async def method(self, *arguments: object) -> bool:
        return True


class Items:
    def __call__(self, *arguments: object) -> Iterator[object]:
        yield from arguments


class Plain:
    def __call__(self, *arguments: object) -> bool:
        return True


REFUSED = {
    "async function": (later, "'later' (.*is async, and nothing here awaits it"),
    "generator": (items, "'items' (.*is a generator, and nothing here iterates it"),
    "async generator": (later_items, "'later_items' (.*is an async generator, and nothing here iterates it"),
    "object that is called": (Later(), "is async"),
    "object that is called and yields": (Items(), "is a generator"),
    "bound method": (Later().method, "is async"),
    "partial": (functools.partial(later, 1), "'later' (.*is async"),
    "partial of a partial": (functools.partial(functools.partial(items, 1), 2), "'items' (.*is a generator"),
    "partial of an object": (functools.partial(Later(), 1), "is async"),
    "cached": (functools.lru_cache(later), "'later' (.*is async"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_runs_is_refused_with_its_name_and_place(name: str) -> None:
    function, message = REFUSED[name]

    with pytest.raises(TopologyError, match="callback: " if name.startswith("object") else message.replace("(", r"\(")):
        refuse_unawaited(function, "callback")
    with pytest.raises(ConfigError, match=message.split("(")[-1].lstrip(".*")):
        refuse_unawaited(function, "callback", error=ConfigError)


@pytest.mark.parametrize(
    "function", [plain, Plain(), functools.partial(plain, 1), lambda: later(), len, int, Later, None]
)
def test_what_does_its_work_when_it_is_called_passes(function: Any) -> None:
    refuse_unawaited(function, "callback")


@pytest.mark.parametrize("given", [1, "f", [], plain()])
def test_what_cannot_be_called_is_refused(given: Any) -> None:
    """Else it would fail at its first call, which may be days later."""
    with pytest.raises(ConfigError, match=f"callback must be a function, not .* of type {type(given).__name__}"):
        refuse_unawaited(given, "callback", error=ConfigError)


def test_a_function_that_drives_a_coroutine_itself_passes() -> None:
    @functools.wraps(later)
    def driven(*arguments: object) -> bool:
        return asyncio.run(later(*arguments))

    refuse_unawaited(driven, "callback")
    assert driven(1)


def test_generators_pass_where_they_are_iterated() -> None:
    refuse_unawaited(items, "flat_map", may_yield=True)
    with pytest.raises(TopologyError, match="is an async generator"):
        refuse_unawaited(later_items, "flat_map", may_yield=True)


@pytest.mark.parametrize(
    ("made", "message"),
    [(later, "a coroutine .later."), (items, "a generator .items."), (later_items, "an async generator .later_items.")],
)
@pytest.mark.filterwarnings("error::RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_results_that_nobody_runs_are_refused_and_closed(made: Any, message: str) -> None:
    with pytest.raises(UnawaitedError, match=rf"node 'x' returned {message}.*give a plain function"):
        refuse_result(made(), "node 'x'")


def test_only_the_first_result_is_looked_at() -> None:
    installed: list[Any] = []

    first = CheckedFunction(plain, "node 'x'", install=installed.append)

    assert first(1)
    assert installed == [plain]


def test_stack_trace_of_a_failure_has_no_frame_of_the_check() -> None:
    def fails() -> None:
        raise ValueError("no")

    first = CheckedFunction(fails, "node 'x'")

    with pytest.raises(ValueError, match="no") as caught:
        first()
    assert [entry.name for entry in caught.traceback][1:] == ["fails"]


def test_place_of_a_function_is_file_and_line() -> None:
    assert located(later).startswith(f"'later' ({__file__}:")
    assert located(functools.partial(later, 1)) == located(later)
    assert located(len) == "'len'"
