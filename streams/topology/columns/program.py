"""Register programs: traced functions as the instructions that ``compiled_columns`` runs over the rows of a block."""

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from streams.topology.columns.symbols import Symbol, constant_key, kind_of
from streams.topology.columns.trace import Fork, Traced, TraceError, Tree

#: A register, or the place of an instruction: its area, and its number there.
_Place: TypeAlias = tuple[str, int]
#: The registers of the symbols that are computed, by identity.
_Computed: TypeAlias = dict[int, _Place]

_AREAS: Final = ("constant", "column", "state", "new", "temporary")
_NAMES: Final = {
    "add": "ADD",
    "sub": "SUB",
    "mul": "MUL",
    "floordiv": "FLOOR",
    "mod": "MOD",
    "truediv": "DIV",
    "neg": "NEG",
    "abs": "ABS",
}
_COMPARED: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_BITS: Final = ("and", "or", "xor")
#: The most columns, and parts of a state, that a program can have.
MAX_WIDTH: Final = 64


@frozen(eq=False)
class RowProgram:
    """The instructions for each row: what may skip it, then what changes a state, and what begins one."""

    #: Four numbers for each instruction: operation, target, operands.
    code: "array[int]"
    constants: "array[int]"
    #: The fields of the source's values that are used; a value that is a number itself is the field "".
    columns: tuple[str, ...]
    #: Where the update of a state begins, and where the first value of a reduction does; -1 if it is none.
    update_at: int
    first_at: int
    #: The kinds of the parts of the state.
    kinds: tuple[type, ...]
    registers: Mapping[str, int]

    @property
    def places(self) -> tuple[int, int, int, int, int]:
        """The entries of the program, and the first registers of columns, state and new state."""
        areas = self.registers
        return self.update_at, self.first_at, areas["column"], areas["state"], areas["new"]


@define(eq=False)
class RowProgramWriter:
    """Writes the program of the nodes on the way from a source to an aggregate, in their order.

    Each method raises TraceError if a function does what registers cannot hold.
    """

    #: The instructions: operation, target, and operands.
    _code: list[list[Any]] = field(factory=list)
    _constants: dict[Any, int] = field(factory=dict)
    _columns: dict[str, int] = field(factory=dict)
    _temporaries: int = 0
    #: The registers of the fields of the value that the last node has forwarded; None: those of the source.
    _fields: Mapping[str, _Place] | None = None
    #: The numbers of the parts of the state.
    _states: Mapping[str, int] = field(factory=dict)

    def filter(self, traced: Traced, *, negate: bool) -> None:
        """Skip the rows for which a condition is not true, or is."""

        def leaf(result: Any, computed: _Computed) -> None:
            if not isinstance(result, Symbol):
                if bool(result) is negate:
                    self._emit("SKIP")
                return
            jump = self._emit("JZ", None, self._truth(result, computed))
            if negate:
                self._emit("SKIP")
                self._land(jump)
            else:
                over = self._emit("JMP")
                self._land(jump)
                self._emit("SKIP")
                self._land(over)

        self._tree(traced.tree, {}, leaf)

    def map(self, traced: Traced) -> None:
        """Replace the value."""
        assert traced.shape is not None
        names = [name for name, _ in traced.shape.fields or [("", traced.shape.kind)]]
        targets = {name: self._temporary() for name in names}
        kinds = dict(traced.shape.fields or [("", traced.shape.kind)])
        shape = traced.shape

        def leaf(result: Any, computed: _Computed) -> None:
            for name, part in zip(names, shape.parts(result), strict=True):
                if kinds[name] in (int, float, bool):
                    self._emit("MOVE", targets[name], self._register(part, computed))

        self._tree(traced.tree, {}, leaf)
        self._fields = {name: place for name, place in targets.items() if kinds[name] in (int, float, bool)}

    def fold(self, traced: Traced, *, is_reduction: bool) -> RowProgram:
        """End with an aggregate, and return the program."""
        self._emit("END")
        shape = traced.shape
        assert shape is not None
        parts = [(name, kind) for name, kind in shape.fields or [("", shape.kind)]]
        first_at = -1
        if is_reduction:
            first_at = len(self._code)
            for number, (name, kind) in enumerate(parts):
                self._emit("MOVE", ("new", number), self._field(name, kind))
            self._emit("END")
        update_at = len(self._code)
        self._states = {name: number for number, (name, _) in enumerate(parts)}

        def leaf(result: Any, computed: _Computed) -> None:
            places = [self._register(part, computed) for part in shape.parts(result)]
            for number, place in enumerate(places):
                self._emit("MOVE", ("new", number), place)
            self._emit("END")

        self._tree(traced.tree, {}, leaf)
        return self._finished(parts, update_at, first_at)

    def value(self, traced: Traced) -> RowProgram:
        """End with a number for each row, and return the program: its new state has the number."""

        def leaf(result: Any, computed: _Computed) -> None:
            self._emit("MOVE", ("new", 0), self._register(result, computed))
            self._emit("END")

        self._tree(traced.tree, {}, leaf)
        return self._finished([("", int)], 0, -1)

    # --- instructions -------------------------------------------------------------------

    def _finished(self, parts: Sequence[tuple[str, Any]], update_at: int, first_at: int) -> RowProgram:
        from streams.core.blocks.compiled_columns import OPERATIONS

        if max(len(self._columns), len(parts)) > MAX_WIDTH:
            raise TraceError(f"uses more than {MAX_WIDTH} numbers")
        sizes = (len(self._constants), len(self._columns), len(parts), len(parts), self._temporaries)
        registers: dict[str, int] = {}
        first = 0
        for area, size in zip(_AREAS, sizes, strict=True):
            registers[area] = first
            first += size
        registers["size"] = first

        def number(place: _Place | None) -> int:
            if place is None:
                return 0
            return 4 * place[1] if place[0] == "instruction" else registers[place[0]] + place[1]

        code = array("q")
        for operation, *operands in self._code:
            code.extend([OPERATIONS[operation], *map(number, operands)])
        constants = array("q", [_bits(each) for _, each in self._constants])
        first_at = 4 * first_at if first_at >= 0 else -1
        kinds = tuple(kind for _, kind in parts)
        return RowProgram(code, constants, tuple(self._columns), 4 * update_at, first_at, kinds, registers)

    def _emit(
        self, operation: str, target: _Place | None = None, left: _Place | None = None, right: _Place | None = None
    ) -> int:
        self._code.append([operation, target, left, right])
        return len(self._code) - 1

    def _land(self, jump: int) -> None:
        """Let a jump go to the next instruction."""
        self._code[jump][1] = ("instruction", len(self._code))

    def _temporary(self) -> _Place:
        self._temporaries += 1
        return "temporary", self._temporaries - 1

    def _tree(
        self,
        tree: Tree,
        computed: _Computed,
        leaf: Callable[[Any, _Computed], None],
    ) -> None:
        if not isinstance(tree, Fork):
            for division in tree.divisions:
                self._register(division, computed)
            leaf(tree.result, computed)
            return
        jump = self._emit("JZ", None, self._truth(tree.test, computed))
        self._tree(tree.yes, dict(computed), leaf)
        over = self._emit("JMP")
        self._land(jump)
        self._tree(tree.no, dict(computed), leaf)
        self._land(over)

    def _truth(self, operand: Any, computed: _Computed) -> _Place:
        place = self._register(operand, computed)
        kind = kind_of(operand)
        if kind is bool:
            return place
        target = self._temporary()
        self._emit("TRUTHF" if kind is float else "TRUTHI", target, place)
        return target

    def _register(self, operand: Any, computed: _Computed) -> _Place:
        """Return the register of a symbol or constant, after the instructions that compute it."""
        if not isinstance(operand, Symbol):
            return self._constant(operand)
        place = computed.get(id(operand))
        if place is None:
            place = computed[id(operand)] = self._computed(operand, computed)
        return place

    def _constant(self, operand: Any) -> _Place:
        if type(operand) not in (int, float, bool):
            raise TraceError(f"computes with a {type(operand).__name__}")
        return "constant", self._constants.setdefault((constant_key(operand), operand), len(self._constants))

    def _field(self, name: str, kind: Any) -> _Place:
        if kind not in (int, float, bool):
            raise TraceError(f"uses .{name}, which is no number" if name else "uses a value that is no number")
        if self._fields is not None:
            return self._fields[name]
        return "column", self._columns.setdefault(name, len(self._columns))

    def _computed(self, symbol: Symbol, computed: _Computed) -> _Place:
        op = symbol.op
        args = symbol.args
        if op == "field":
            return self._field(args[0], symbol.kind)
        if op == "state":
            return "state", self._states[args[0]]
        if op in ("key", "value"):
            raise TraceError(f"uses the {op}")
        if op == "select":
            return self._selected(args, computed)
        kinds = set(map(kind_of, args))
        if not kinds <= {int, float, bool}:
            raise TraceError("compares texts")
        is_float = float in kinds
        suffix = "F" if is_float else "I"
        if op in _COMPARED:
            name = op.upper() + suffix
            widen = "EXACTF"
        elif op in _BITS:
            name = op.upper() + "I"
            widen = ""
        else:
            name = _NAMES[op] + suffix
            widen = "ITOF"
        places = [self._widened(arg, widen, computed) if is_float else self._register(arg, computed) for arg in args]
        target = self._temporary()
        self._emit(name, target, *places)
        return target

    def _widened(self, operand: Any, operation: str, computed: _Computed) -> _Place:
        """Return the register of an operand as a float."""
        if kind_of(operand) is float:
            return self._register(operand, computed)
        if not isinstance(operand, Symbol):
            return self._constant(float(operand))
        target = self._temporary()
        self._emit(operation, target, self._register(operand, computed))
        return target

    def _selected(self, args: tuple[Any, ...], computed: _Computed) -> _Place:
        test, *sides = args
        # Both sides were computed before one of them was chosen.
        places = [self._register(side, computed) for side in sides]
        target = self._temporary()
        jump = self._emit("JZ", None, self._truth(test, computed))
        self._emit("MOVE", target, places[0])
        over = self._emit("JMP")
        self._land(jump)
        self._emit("MOVE", target, places[1])
        self._land(over)
        return target


def _bits(constant: Any) -> int:
    """Return the bits of a constant as a whole number."""
    if isinstance(constant, float):
        return int(struct.unpack("<q", struct.pack("<d", constant))[0])
    return int(constant)
