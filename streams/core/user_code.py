"""User code: finding its line in a traceback, and rejecting functions that are async or generators.

A coroutine that is not awaited, or a generator that is not iterated, silently does nothing. Such functions are
rejected when they are passed in; a lambda that returns a coroutine or generator is rejected when it returns.
This module imports only ``core.errors``.
"""

import functools
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, TracebackType
from typing import Any

from attrs import define, fields, has

from streams.core.errors import ConfigError, StreamsError, TopologyError, UnawaitedError

#: Directories that do not contain user code: this package, libraries, the standard library.
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
    """Return the innermost frame of user code in a traceback, or None if there is none."""
    for frame in reversed(traceback.extract_tb(trace)):
        if not frame.filename.startswith(("<", *_NOT_THE_USERS)):
            return frame
    return None


def place_in_user_code(error: BaseException) -> str:
    """Return the line of user code that raised an error (file, line, function and text), or an empty string."""
    frame = last_frame_outside(error.__traceback__)
    if frame is None:
        return ""
    text = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}:{frame.lineno}, {frame.name}{text}"


def located(function: Any) -> str:
    """Return the name, file and line of a function, for messages."""
    inner = _inner(function)
    name = getattr(inner, "__qualname__", None) or repr(function)
    code = getattr(inspect.unwrap(inner) if callable(inner) else inner, "__code__", None)
    if code is None:
        return f"{name!r}"
    return f"{name!r} ({code.co_filename}:{code.co_firstlineno})"


def is_same(one: Any, two: Any) -> bool:
    """Return whether two functions, or objects with functions, are one or copies of it, as those of a pickled topology.

    >>> def of(name):
    ...     return lambda row: row[name]
    >>> is_same(of("at"), of("at")), is_same(of("at"), of("sent"))
    (True, False)
    """
    if one is two:
        return True
    if isinstance(one, FunctionType) and isinstance(two, FunctionType):
        cells = one.__closure__ or (), two.__closure__ or ()
        return (
            one.__code__ == two.__code__
            and _are_same(one.__defaults__ or (), two.__defaults__ or ())
            and _are_same([cell.cell_contents for cell in cells[0]], [cell.cell_contents for cell in cells[1]])
        )
    if isinstance(one, functools.partial) and isinstance(two, functools.partial):
        return (
            is_same(one.func, two.func)
            and _are_same(one.args, two.args)
            and one.keywords.keys() == two.keywords.keys()
            and all(is_same(value, two.keywords[name]) for name, value in one.keywords.items())
        )
    kind = type(one)
    if kind is type(two) and has(kind) and kind.__eq__ is not object.__eq__:
        return all(is_same(getattr(one, part.name), getattr(two, part.name)) for part in fields(kind))
    return bool(one == two)


def _are_same(ones: Sequence[Any], twos: Sequence[Any]) -> bool:
    return len(ones) == len(twos) and all(map(is_same, ones, twos))


def expected_result(error: BaseException, function: Any, form: str) -> str:
    """Return a message part that says which ``form`` a function must return, if its result caused the error.

    Python's own message, such as "cannot unpack non-iterable NoneType object", names neither the function nor the
    form, and no line of user code is in the traceback.  It is an empty string if the error came from the function.
    """
    has_frame = hasattr(inspect.unwrap(_inner(function)), "__code__")
    if not has_frame or not isinstance(error, TypeError | ValueError) or place_in_user_code(error):
        return ""
    return f"; {located(function)} must return {form}"


def refuse_no_pair(result: object) -> None:
    """Reject what can be unpacked, but is no pair (key, value): text, bytes, a set or a dict of two.

    Callers ask only about what is no plain tuple, because this call costs more than the user's function.

    Raises:
        TypeError: the result is neither a tuple nor a list; ``expected_result`` names its function.
    """
    if not isinstance(result, tuple | list):
        raise TypeError(f"{result!r:.60} is no pair")


def form_taken(function: Any, what: str, forms: Sequence[str], error: type[StreamsError] = TopologyError) -> int:
    """Return the index of the first form in ``forms``, such as ``(key, value)``, that a function can be called with.

    Raises:
        StreamsError: it can be called with none of them; raised as class ``error``.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return 0  # Built-in functions may have no signature: assume the first form, which is the usual one.
    for index, form in enumerate(forms):
        try:
            signature.bind(*[None] * count_of(form))
        except TypeError:
            continue
        return index
    raise error(f"{what}: {located(function)} takes {signature}; give a function of {' or '.join(forms)}")


def count_of(form: str) -> int:
    """Return the number of arguments in a form such as ``(key, value)``, or 0 for ``()``."""
    return 0 if form == "()" else form.count(",") + 1


def refuse_unawaited(
    function: Any,
    what: str,
    *,
    may_yield: bool = False,
    error: type[StreamsError] = TopologyError,
    awaited_by: str | None = None,
) -> None:
    """Reject what cannot be called, an async function, an async generator, or (without ``may_yield``) a generator.

    Partial functions, bound methods, cached functions and callable objects are unwrapped.  ``what``
    names the argument in the message, and ``awaited_by`` the operator for async functions, if there is one.  None
    stands for no function.

    Raises:
        StreamsError: the function is not supported; raised as class ``error``.
    """
    if function is None:
        return
    if not callable(function):
        raise error(f"{what} must be a function, not {function!r:.60} of type {type(function).__qualname__}")
    inner = _inner(function)
    if inspect.iscoroutinefunction(inner):
        kind = "async"
        if awaited_by is not None:
            raise error(f"{what}: {located(function)} is async, and nothing here awaits it; use {awaited_by}")
    elif inspect.isasyncgenfunction(inner):
        kind = "an async generator"
    elif inspect.isgeneratorfunction(inner) and not may_yield:
        kind = "a generator"
    else:
        return
    raise error(f"{what}: {located(function)} is {kind}, and {_REMEDY[kind]}")


def is_async(function: Any) -> bool:
    """Return whether a function, or the function that it wraps (``__wrapped__``), is an async function."""
    return inspect.iscoroutinefunction(inspect.unwrap(_inner(function)))


def refuse_not_async(function: Any, what: str, *, instead: str) -> None:
    """Reject a function that does not return an awaitable: a plain function, a generator, or an async generator.

    A lambda or a wrapper of an async function is accepted, since it may return an awaitable; each result is checked.

    Raises:
        TopologyError: the function is not async; the message names the operator ``instead``.
    """
    inner = _inner(function)
    # The wrapper of a decorator may return what the async function returns.
    if is_async(inner) or getattr(inner, "__name__", "") == "<lambda>":
        return
    if inspect.isasyncgenfunction(inner):
        kind = "an async generator"
        remedy = "give an async def that returns its results as a list"
    elif inspect.isgeneratorfunction(inner):
        kind = "a generator"
        remedy = f"use {instead}"
    else:
        kind = "not async"
        remedy = f"use {instead}, or give an async def"
    raise TopologyError(f"{what}: {located(function)} is {kind}; {remedy}")


def refuse_unawaited_methods(
    owner: Any, names: tuple[str, ...], what: str, *, error: type[StreamsError] = TopologyError
) -> None:
    """Reject an object or a class if one of the named methods cannot be called, is async or a generator.

    Raises:
        StreamsError: one of the methods is not supported; raised as class ``error``.
    """
    for name in names:
        refuse_unawaited(getattr(owner, name, None), f"{name} of {what}", error=error)


def check_arity(function: Any, what: str, arguments: int, form: str) -> None:
    """Check that a function given for a setting can be called with ``arguments`` arguments.

    ``what`` names the setting in messages, and ``form`` describes the function.

    Raises:
        ConfigError: the function is a class, async or a generator, or takes another number of arguments.
    """
    if isinstance(function, type):
        raise ConfigError(f"{what}: {function.__qualname__} is a class; give {form}, or an object that can be called")
    refuse_unawaited(function, what, error=ConfigError)
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # A built-in function without a signature.
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise ConfigError(f"{what}: {located(function)} takes {signature}; give {form}") from None


def refuse_result(result: object, what: str) -> None:
    """Reject a result that is a coroutine or a new generator, because its code would never run.

    Raises:
        UnawaitedError: the result is a coroutine or a new generator.
    """
    description = _RETURNED.get(type(result))
    if description is not None:
        close = getattr(result, "close", None)
        if close is not None:
            close()  # Python would also warn, but later and without the location.
        kind, verb = description
        raise UnawaitedError(
            f"{what} returned {kind} ({getattr(result, '__qualname__', '?')}), which nothing here {verb}: "
            "its code would not run; give a plain function"
        )


@define(eq=False)
class CheckedFunction:
    """A user function whose first result is checked: a coroutine or a generator is rejected.

    ``what`` names the function in the message.  With ``may_yield``, generators are accepted. After the first
    result, ``install`` is called with the function itself, so that later calls have no overhead.
    """

    function: Callable[..., Any]
    what: str
    may_yield: bool = False
    install: Callable[[Callable[..., Any]], object] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function.

        Raises:
            UnawaitedError: the result would never be awaited or iterated.
        """
        try:
            result = self.function(*arguments)
        except BaseException as error:
            # Dead letters contain stack traces, and the trace for the first record must have the same frames as
            # the others.
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise
        if not (self.may_yield and type(result) is GeneratorType):
            refuse_result(result, self.what)
        if self.install is not None:
            self.install(self.function)
        return result


def _inner(function: Any) -> Any:
    """Return the innermost function of partials, bound methods, cached functions and callable objects."""
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
            return function  # A callable object that is marked as a coroutine function.
        else:
            call: object = type(function).__call__
            if not isinstance(call, FunctionType | functools.partialmethod):
                return function
            function = call.func if isinstance(call, functools.partialmethod) else call
