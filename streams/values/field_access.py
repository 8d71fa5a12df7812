"""Analysis of the fields that a function reads from its argument, so that it can be called without the whole value.

The result is derived from the function's bytecode.  It is None for a function that does anything with its argument
other than reading attributes.  This module imports no other module of the project.
"""

import dis
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any

#: Names of functions through which code can access its local variables indirectly.
_ESCAPES = {"locals", "eval", "exec", "vars", "dir", "_getframe", "currentframe"}
_GENERATOR = 0x20 | 0x80 | 0x100 | 0x200


def path_read(function: Any) -> tuple[str, ...] | None:
    """Return the attribute path that a function of one argument returns, or None if it does anything else.

    >>> path_read(lambda order: order.customer.name), path_read(lambda order: order.name or "")
    (('customer', 'name'), None)
    """
    getter = _getter_paths(function)
    if getter is not None:
        return getter[0] if len(getter) == 1 else None
    code = _code(function)
    if code is None:
        return None
    first, *rest = _instructions(code)
    if not rest or not _loads(first, code.co_varnames[0]) or rest[-1].opname != "RETURN_VALUE":
        return None
    if any(step.opname != "LOAD_ATTR" for step in rest[:-1]) or len(rest) == 1:
        return None
    return tuple(step.argval for step in rest[:-1])


def guarded_path_read(function: Any) -> tuple[str, ...] | None:
    """Return the attribute path that a function returns unless its first attribute is None, and then None.

    It is None if the function does anything else.

    >>> guarded_path_read(lambda order: None if order.customer is None else order.customer.name)
    ('customer', 'name')
    >>> guarded_path_read(lambda order: order.customer.name if order.customer is not None else None)
    ('customer', 'name')
    >>> guarded_path_read(lambda order: None if order.customer is None else order.name)
    """
    code = _code(function)
    if code is None or len(code.co_names) < 2 or code.co_freevars or code.co_argcount != code.co_nlocals:
        return None
    # The bytecode of an expression depends on the version of Python, so it is compared with that of the same one.
    return code.co_names if any(_is_same(code, template) for template in _guarded_codes(code.co_names)) else None


@cache
def _guarded_codes(path: tuple[str, ...]) -> list[CodeType]:
    guarded = f"it.{path[0]}"
    whole = f"it.{'.'.join(path)}"
    texts = (f"None if {guarded} is None else {whole}", f"{whole} if {guarded} is not None else None")
    return [eval(f"lambda it: {text}").__code__ for text in texts]


def _is_same(code: CodeType, template: CodeType) -> bool:
    return (code.co_code, code.co_names, code.co_consts) == (template.co_code, template.co_names, template.co_consts)


def fields_read(function: Any) -> frozenset[str] | None:
    """Return the attributes that a function reads from its only argument, or None if it may use it in other ways.

    >>> sorted(fields_read(lambda order: order.at if order.paid else order.due.date()))
    ['at', 'due', 'paid']
    >>> fields_read(lambda order: str(order))
    """
    getter = _getter_paths(function)
    if getter is not None:
        return frozenset(path[0] for path in getter)
    code = _code(function)
    if code is None:
        return None
    name = code.co_varnames[0]
    steps = _instructions(code)
    fields = set()
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if not _names(step, name):
            continue
        if not _loads(step, name) or following is None or following.opname != "LOAD_ATTR":
            return None
        fields.add(following.argval)
    return frozenset(fields)


def _getter_paths(function: Any) -> list[tuple[str, ...]] | None:
    if type(function) is not attrgetter:
        return None
    return [tuple(path.split(".")) for path in function.__reduce__()[1]]


def _code(function: Any) -> CodeType | None:
    """Return the code of a function of one argument; None if the code may access its local variables indirectly."""
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    has_one = code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & (0x04 | 0x08)
    if not has_one or code.co_flags & _GENERATOR or code.co_varnames[0] in code.co_cellvars:
        return None
    return None if _ESCAPES & {*code.co_names} else code


def _instructions(code: CodeType) -> list[dis.Instruction]:
    return [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP", "CACHE")]


def _names(step: dis.Instruction, name: str) -> bool:
    """Return whether an instruction reads or changes the variable ``name``."""
    if "FAST" not in step.opname:
        return False
    return name in step.argval if isinstance(step.argval, tuple) else step.argval == name


def _loads(step: dis.Instruction, name: str) -> bool:
    return step.opname in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK") and step.argval == name
