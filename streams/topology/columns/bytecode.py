"""What running a function with symbols cannot see is refused from its bytecode, and from what it calls meanwhile.

The opcodes and the C functions that are allowed are closed lists: what a later Python adds is refused.
"""

import builtins
import dis
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import msgspec
from attrs import define, field, frozen

from streams.topology.columns.symbols import CONSTANTS, Symbol, TraceError

_PLAIN_OPCODES: Final = frozenset(
    """
    BINARY_OP BUILD_TUPLE CACHE CALL CALL_KW COMPARE_OP COPY COPY_FREE_VARS JUMP_FORWARD JUMP_IF_FALSE_OR_POP
    JUMP_IF_TRUE_OR_POP KW_NAMES LOAD_ATTR LOAD_CONST LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW
    LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_METHOD LOAD_SMALL_INT NOP NOT_TAKEN
    POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE
    POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL PUSH_NULL RESUME
    RETURN_CONST RETURN_VALUE STORE_ATTR STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP TO_BOOL
    UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_SEQUENCE
    """.split()  # noqa: SIM905
)
#: Opcodes whose names say little, as what a function does with them.
_DOES: Final = {
    "BINARY_SUBSCR": "looks an item up",
    "BINARY_SLICE": "takes a slice",
    "BUILD_LIST": "builds a list",
    "BUILD_MAP": "builds a dict",
    "BUILD_CONST_KEY_MAP": "builds a dict",
    "BUILD_SET": "builds a set",
    "BUILD_STRING": "makes text",
    "CONTAINS_OP": "uses `in`",
    "FORMAT_VALUE": "makes text",
    "FORMAT_SIMPLE": "makes text",
    "GET_ITER": "has a loop",
    "IMPORT_NAME": "imports a module",
    "JUMP_BACKWARD": "has a loop",
    "LIST_EXTEND": "builds a list",
    "MAKE_FUNCTION": "has a function or a comprehension within",
    "MATCH_CLASS": "matches by a class",
    "RAISE_VARARGS": "raises an error",
    "LOAD_ASSERTION_ERROR": "has an assertion",
    "STORE_DEREF": "changes a variable of another function",
    "STORE_GLOBAL": "changes a global variable",
}
_GENERATORS: Final = 0x20 | 0x80 | 0x100 | 0x200
#: Functions of Python's own that work on symbols; ``bool`` and classes are no functions.
_CALLABLE: Final = ("max", "min", "abs", "bool")
_OPERATORS: Final = "add sub mul truediv floordiv mod and_ or_ xor neg pos abs lt le eq ne gt ge not_ truth"
_C_FUNCTIONS: Final = (
    *(getattr(builtins, name) for name in _CALLABLE if name != "bool"),
    *(getattr(operator, name) for name in _OPERATORS.split()),
    msgspec.structs.replace,
)
#: Modules whose attributes do not change.
_MODULES: Final = ("math", "operator", "msgspec", "msgspec.structs", "attrs", "attr", "dataclasses")
#: Those whose Python functions only copy objects, or create them.
_LIBRARIES: Final = ("attrs", "attr", "dataclasses")


@frozen(eq=False)
class OuterName:
    """A name outside of a function that it uses, and what it stood for when the function was traced."""

    names: Mapping[str, Any]
    name: str
    value: Any

    @property
    def is_same(self) -> bool:
        """Whether it still stands for the same object."""
        return self.names.get(self.name, _MISSING) is self.value


@frozen(eq=False)
class OuterVariable:
    """A variable of an enclosing function, and what it held when the function within was traced."""

    cell: CellType
    value: Any

    @property
    def is_same(self) -> bool:
        """Whether it still holds the same object."""
        return self.cell != _EMPTY and self.cell.cell_contents is self.value


#: As a variable of an enclosing function that was deleted, or has no value yet.
_EMPTY: Final = CellType()
#: In place of a global variable that does not exist, so that a name is that of a function of Python.
_MISSING: Final = object()


@define(eq=False)
class CodeWatch:
    """Checks each Python function that runs, once, and each C function that is called, while a function is traced.

    ``classes`` are those of the values and of the state: their attributes that are no fields may change.  What the
    symbols of a caller can do beyond those of columns is given by ``opcodes``, ``kinds``, whose objects may be used
    from outside, and ``modules``, whose code, with what it calls, is the caller's.
    """

    classes: Sequence[type]
    opcodes: Collection[str] = ()
    kinds: tuple[type, ...] = ()
    modules: Collection[str] = ()
    #: Whether no symbol stands for None, so that code may ask for it.
    has_no_none: bool = True
    #: Names of attributes that the code reads.
    names: set[str] = field(factory=set)
    #: What the code uses from outside: names and variables may be bound to other objects later.
    outer: list[OuterName | OuterVariable] = field(factory=list)
    _checked: set[CodeType] = field(factory=set)
    _functions: set[FunctionType] = field(factory=set)
    _refusal: TraceError | None = None

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call a function.

        Raises:
            TraceError: it, or what it calls, does what cannot be traced.
        """
        before = sys.getprofile()
        sys.setprofile(self._on_event)
        try:
            result = function(*arguments)
        finally:
            sys.setprofile(before)
        if self._refusal is not None:
            raise self._refusal
        return result

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_call") or self._refusal is not None or self._is_own(frame):
            return
        try:
            if event == "call":
                self.check(frame.f_code, frame.f_globals)
                self._check_locals(frame.f_code, frame.f_locals)
            elif not is_c_function(argument) and not _creates(argument):
                raise TraceError(f"calls {argument.__qualname__}()")
        except TraceError as refusal:
            refusal.__traceback__ = None
            refusal.add_note(_place(frame.f_code, frame.f_lineno))
            self._refusal = refusal
            # What is refused is not run either: it might write somewhere.  No code that has begun catches this.
            raise

    def check_function(self, function: FunctionType) -> None:
        """Refuse a function by its bytecode, its defaults and its outer variables.

        Raises:
            TraceError: it does what running it does not show.
        """
        if function in self._functions:
            return
        self._functions.add(function)
        self.check(function.__code__, function.__globals__)
        values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if cell == _EMPTY:
                raise TraceError(f"uses {name}, which has no value yet")
            values.append(cell.cell_contents)
            self.outer.append(OuterVariable(cell, cell.cell_contents))
            self._check_outer(name, cell.cell_contents)
        for value in values:
            if isinstance(value, FunctionType):
                self.check_function(value)
            elif not (_is_constant(value) or is_c_function(value) or isinstance(value, self.kinds)):
                raise TraceError(f"uses a {type(value).__name__} from outside, which may change")

    def check(self, code: CodeType, names: Mapping[str, Any]) -> None:
        """Refuse code that does what running it does not show.

        Raises:
            TraceError: such code, or code of a generator or coroutine, or with ``try`` or ``with``.
        """
        if code in self._checked:
            return
        self._checked.add(code)
        if code.co_flags & _GENERATORS:
            raise TraceError("is a generator or async")
        if code.co_exceptiontable:
            raise TraceError("has a try or with")
        steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        for before, step, following in zip([None, *steps], steps, [*steps[1:], None], strict=False):
            try:
                self._check_step(before, step, following, names)
            except TraceError as refusal:
                line = step.positions.lineno if step.positions else None
                refusal.add_note(_place(code, line or code.co_firstlineno))
                raise

    def _check_step(self, before: Any, step: Any, following: Any, names: Mapping[str, Any]) -> None:
        name = step.opname
        if not self.has_no_none and (name == "IS_OP" or name.endswith(("_IF_NONE", "_IF_NOT_NONE"))):
            raise TraceError("uses `is`")
        if name == "IS_OP":
            if not (before.opname == "LOAD_CONST" and before.argval is None):
                raise TraceError("uses `is` with something other than None")
        elif name == "LOAD_GLOBAL":
            self._check_global(step.argval, following, names)
        elif name == "CALL_INTRINSIC_1" and step.argrepr == "INTRINSIC_UNARY_POSITIVE":
            pass
        elif name in ("LOAD_DEREF", "COPY_FREE_VARS"):
            pass  # Outer variables are checked with their values.
        elif name not in _PLAIN_OPCODES and name not in self.opcodes:
            raise TraceError(_DOES.get(name, f"does {name}"))
        if name in ("LOAD_GLOBAL", "LOAD_DEREF") and following.opname == "STORE_ATTR":
            raise TraceError(f"changes {step.argval}")
        if name in ("LOAD_ATTR", "LOAD_METHOD"):
            if step.argval in ("__class__", "__dict__"):
                raise TraceError(f"uses .{step.argval}")
            self.names.add(step.argval)
            for owner in self.classes:
                self._check_attribute(owner, step.argval)

    def _check_global(self, name: str, following: Any, names: Mapping[str, Any]) -> None:
        self.outer.append(OuterName(names, name, names.get(name, _MISSING)))
        if name not in names:
            if name not in _CALLABLE:
                raise TraceError(f"calls {name}()" if hasattr(builtins, name) else f"uses {name}, which does not exist")
            return
        value = names[name]
        self._check_outer(name, value)
        if isinstance(value, FunctionType) and not self._is_trusted(value.__module__ or ""):
            self.check_function(value)
        is_type = isinstance(value, type | FunctionType)
        if is_type and following is not None and following.opname in ("COPY", "STORE_FAST"):
            raise TraceError(f"gives {name} another name, or changes it")
        is_read = following is not None and following.opname in ("LOAD_ATTR", "LOAD_METHOD")
        if is_read:
            self._check_read(value, following.argval)

    def _check_locals(self, code: CodeType, values: Mapping[str, Any]) -> None:
        """Refuse what code that begins to run might read of its arguments and outer variables, and which may change."""
        if code.co_freevars and code not in {function.__code__ for function in self._functions}:
            raise TraceError(f"uses {code.co_freevars[0]}, a variable of another function")
        for value in values.values():
            for name in code.co_names:
                self._check_read(value, name)

    def _check_read(self, value: Any, name: str) -> None:
        """Refuse an attribute of a class or function that may change."""
        if isinstance(value, FunctionType) and name in vars(value):
            raise TraceError(f"uses {value.__name__}.{name}, which may change")
        if isinstance(value, type) and not issubclass(value, Enum):
            self._check_attribute(value, name)

    def _check_outer(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            if value.__name__ not in _MODULES and value.__name__ not in self.modules:
                raise TraceError(f"uses the module {name}")
        elif not (_is_constant(value) or isinstance(value, (type, FunctionType, *self.kinds)) or is_c_function(value)):
            raise TraceError(f"uses {name}, a {type(value).__name__} that may change")

    def _is_own(self, frame: FrameType) -> bool:
        """Whether code is of this package or the caller, generated for a class, or of a library that copies objects."""
        module = frame.f_globals.get("__name__", "")
        is_generated = frame.f_code.co_name == "__init__" and frame.f_code.co_filename.startswith(
            ("<string>", "<attrs generated")
        )
        return is_generated or self._is_trusted(module) or self._is_of_caller(frame)

    def _is_trusted(self, module: str) -> bool:
        """Whether functions of a module only copy objects, or are those of this package or the caller."""
        is_library = module.partition(".")[0] in _LIBRARIES or module.startswith(("namedtuple_", __package__))
        return is_library or module in self.modules

    def _is_of_caller(self, frame: FrameType | None) -> bool:
        """Whether code is of the caller's modules, or called by it."""
        while self.modules and frame is not None and frame.f_code is not CodeWatch.run.__code__:
            if frame.f_globals.get("__name__") in self.modules:
                return True
            frame = frame.f_back
        return False

    @staticmethod
    def _check_attribute(owner: type, name: str) -> None:
        """Refuse an attribute of a class that is no field, method or property: it may change."""
        for base in owner.__mro__:
            if name in vars(base):
                value = vars(base)[name]
                if not (callable(value) or hasattr(value, "__get__")) and name not in _field_names(owner):
                    raise TraceError(f"uses {owner.__name__}.{name}, which may change")
                return


def is_c_function(function: object) -> bool:
    """Whether a function of C gives with symbols what it gives with values."""
    return any(function is allowed for allowed in _C_FUNCTIONS)


def _field_names(owner: type) -> Sequence[str]:
    return tuple(getattr(owner, "__annotations__", ()))


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, CONSTANTS)


def _creates(function: Any) -> bool:
    """Whether a C function creates an object or sets its fields, as generated constructors call them."""
    return getattr(function, "__name__", "") in ("__new__", "__init__", "__setattr__", "setprofile")


def place_of(function: Any) -> str:
    """Return the name, file and line of a function."""
    code = getattr(function, "__code__", None)
    return getattr(function, "__name__", repr(function)) if code is None else _place(code, code.co_firstlineno)


def _place(code: CodeType, line: int) -> str:
    """Return where code is: its name, file and line."""
    return f"{code.co_name} ({code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{line})"


def symbols_in(value: Any) -> Iterator[Symbol]:
    """Yield the symbols below one, each once, itself first."""
    pending = [value]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if isinstance(item, Symbol) and id(item) not in seen:
            seen.add(id(item))
            yield item
            pending += item.args
