"""User code: which line of a traceback is the user's, and which functions nobody here would run to their end.

A coroutine that is not awaited and a generator that is not iterated do nothing, and say nothing.
Both are refused where a function is given, or where that cannot be told (a lambda that returns one)
when it is returned.  Imports errors only.
"""

import functools
import inspect
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, TracebackType
from typing import Any

from streams.core.errors import StreamsError, TopologyError, UnawaitedError

#: Where code is that is not the user's: this package, libraries, Python itself.
_NOT_THE_USERS = (
    str(Path(__file__).parent.parent),
    *(sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")),
)

_REMEDY = {
    "async": "nothing here awaits it; give a plain function, which may call asyncio.run()",
    "an async generator": "nothing here iterates it; give a plain function",
    "a generator": "nothing here iterates it, so that its body would never run; give a plain function without yield",
}
_RETURNED = {
    CoroutineType: ("a coroutine", "awaits"),
    AsyncGeneratorType: ("an async generator", "iterates"),
    GeneratorType: ("a generator", "iterates"),
}


def last_frame_outside(trace: TracebackType | None) -> traceback.FrameSummary | None:
    """Return the innermost frame that is the user's, None if there is none."""
    for frame in reversed(traceback.extract_tb(trace)):
        if not frame.filename.startswith(("<", *_NOT_THE_USERS)):
            return frame
    return None


def place_in_user_code(error: BaseException) -> str:
    """Return where in the user's code an error came up: file, line, function and text; empty if nowhere."""
    frame = last_frame_outside(error.__traceback__)
    if frame is None:
        return ""
    text = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}:{frame.lineno}, {frame.name}{text}"


def located(function: Any) -> str:
    """Return a function's name and where it is defined, for messages."""
    inner = _inner(function)
    name = getattr(inner, "__qualname__", None) or repr(function)
    code = getattr(inspect.unwrap(inner) if callable(inner) else inner, "__code__", None)
    if code is None:
        return f"{name!r}"
    return f"{name!r} ({code.co_filename}:{code.co_firstlineno})"


def refuse_unawaited(
    function: Any, what: str, *, may_yield: bool = False, error: type[StreamsError] = TopologyError
) -> None:
    """Refuse an async function, an async generator or, unless it ``may_yield``, a generator.

    Looks into partial functions, bound methods, cached functions and objects that are called.
    ``what`` names the argument in the message; what is no function at all passes.

    Raises:
        StreamsError: of the class ``error``.
    """
    inner = _inner(function)
    if inspect.iscoroutinefunction(inner):
        kind = "async"
    elif inspect.isasyncgenfunction(inner):
        kind = "an async generator"
    elif inspect.isgeneratorfunction(inner) and not may_yield:
        kind = "a generator"
    else:
        return
    raise error(f"{what}: {located(function)} is {kind}, and {_REMEDY[kind]}")


def refuse_unawaited_methods(
    owner: Any, names: tuple[str, ...], what: str, *, error: type[StreamsError] = TopologyError
) -> None:
    """Refuse an object or class one of whose named methods is async or a generator.

    Raises:
        StreamsError: of the class ``error``.
    """
    for name in names:
        refuse_unawaited(getattr(owner, name, None), what, error=error)


def refuse_result(result: object, what: str) -> None:
    """Refuse what a function gave back where nobody looks at it: a coroutine or a generator, not begun.

    Raises:
        UnawaitedError: it is one.
    """
    found = _RETURNED.get(type(result))
    if found is not None:
        close = getattr(result, "close", None)
        if close is not None:
            close()  # Python would warn of it as well, later and without a place.
        kind, verb = found
        raise UnawaitedError(
            f"{what} returned {kind} ({getattr(result, '__qualname__', '?')}), which nothing here {verb}: "
            "what it should do is not done; give a plain function"
        )


def first_result_checked(
    function: Callable[..., Any], what: str, install: Callable[[Callable[..., Any]], None], *, may_yield: bool
) -> Callable[..., Any]:
    """Return the function with a look at its first result, after which it is installed as it is.

    So the hot path costs nothing.  A generator passes where one ``may_yield``, as a value does.
    """

    def first(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except BaseException as error:
            # Stack traces travel with dead letters: that of a first record has no frame more than others have.
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise
        if not (may_yield and type(result) is GeneratorType):
            refuse_result(result, what)
        install(function)
        return result

    return first


def _inner(function: Any) -> Any:
    """Return what is called in the end."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, functools._lru_cache_wrapper):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isroutine(function) or inspect.isclass(function) or not callable(function):
            return function
        elif inspect.iscoroutinefunction(function):
            return function  # Marked as one, though it is an object.
        else:
            call: object = type(function).__call__
            if not isinstance(call, FunctionType | functools.partialmethod):
                return function
            function = call.func if isinstance(call, functools.partialmethod) else call
