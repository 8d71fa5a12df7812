"""Regular expressions of subscriptions, matched in linear time, as RE2 does (KIP-848).

Any client may send an expression to the coordinator, and one that backtracks can block it for ever.  So an expression
is translated to the states of an automaton, and a name is matched by keeping all states that its characters can lead
to: the cost is at most the number of states times the length of the name.  The syntax is that of Python's ``re``
without what needs backtracking: references to groups, and lookaround.  This module performs no I/O.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

#: The parser of ``re``; its module has no public name since Python 3.11.
_PARSER: Final[Any] = importlib.import_module("re._parser")

#: The largest number of states of an expression; repetitions are counted as often as they are repeated.
MAX_STATES: Final = 1_000
#: The number of sets of states that are remembered for an expression.
_MAX_REMEMBERED: Final = 1_000

#: Whether a character is accepted.
_Accepts: TypeAlias = Callable[[str], bool]
#: Whether a position (text, index) is accepted.
_Holds: TypeAlias = Callable[[str, int], bool]


class PatternError(ValueError):
    """An expression is invalid, or cannot be matched in linear time."""


@define
class _State:
    """A state: it accepts a character, or holds at a position, or leads on at once."""

    accepts: _Accepts | None = None
    holds: _Holds | None = None
    #: Indices of the next states.
    to: list[int] = field(factory=list)


@frozen
class TopicPattern:
    """A compiled expression; ``matches`` tells whether it matches a whole name."""

    _states: Sequence[_State]
    _remembered: dict[tuple[frozenset[int], str], frozenset[int]] = field(factory=dict)

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        current = frozenset({0})
        last = len(self._states) - 1
        for index, character in enumerate(name):
            reached = self._closed(current, name, index)
            key = (reached, character)
            states = self._remembered.get(key)
            if states is None:
                states = frozenset(to for to in reached if self._accepted(to, character) for to in self._states[to].to)
                if len(self._remembered) < _MAX_REMEMBERED:
                    self._remembered[key] = states
            if not states:
                return False
            current = states
        return last in self._closed(current, name, len(name))

    def _accepted(self, state: int, character: str) -> bool:
        accepts = self._states[state].accepts
        return accepts is not None and accepts(character)

    def _closed(self, states: Set[int], name: str, index: int) -> frozenset[int]:
        """Return the states that can be reached without another character."""
        seen = set(states)
        todo = list(states)
        while todo:
            state = self._states[todo.pop()]
            if state.accepts is None and (state.holds is None or state.holds(name, index)):
                new = [to for to in state.to if to not in seen]
                seen.update(new)
                todo += new
        return frozenset(seen)


def compiled(expression: str) -> TopicPattern:
    """Compile an expression.

    Raises:
        PatternError: it is invalid, too large, or needs backtracking.
    """
    try:
        parsed = _PARSER.parse(expression)
        builder = _Builder()
        builder.sequence(parsed, parsed.state.flags)
    except (re.error, OverflowError) as error:
        raise PatternError(str(error)) from error
    except RecursionError as error:
        raise PatternError("it is nested too deeply") from error
    # The last state is the end.
    builder.add(_State())
    return TopicPattern(builder.states)


@define
class _Builder:
    """Adds states for each part of an expression; a part leads on to the state that is added after it."""

    states: list[_State] = field(factory=list)

    def add(self, state: _State) -> _State:
        if len(self.states) > MAX_STATES:
            raise PatternError(f"it has more than {MAX_STATES} states; repeat less, or use .*")
        self.states.append(state)
        return state

    def sequence(self, parts: Iterable[tuple[Any, Any]], flags: int) -> None:
        """Add parts that follow each other."""
        for operation, value in parts:
            name = str(operation)
            if name in ("MAX_REPEAT", "MIN_REPEAT"):
                least, most, inner = value
                self._repeat(least, most, inner, flags)
            elif name == "BRANCH":
                self._branch(value[1], flags)
            elif name == "SUBPATTERN":
                _, on, off, inner = value
                self.sequence(inner, (flags | on) & ~off)
            elif name == "AT":
                self.add(_State(holds=_POSITIONS[str(value)], to=[len(self.states) + 1]))
            else:
                self.add(
                    _State(
                        accepts=_character(name, value, is_folded=bool(flags & re.IGNORECASE)),
                        to=[len(self.states) + 1],
                    )
                )

    def _branch(self, choices: Sequence[Any], flags: int) -> None:
        fork = self.add(_State())
        ends = []
        for choice in choices:
            fork.to.append(len(self.states))
            self.sequence(choice, flags)
            ends.append(self.add(_State()))
        for end in ends:
            end.to.append(len(self.states))

    def _repeat(self, least: int, most: Any, inner: Any, flags: int) -> None:
        for _ in range(least):
            before = len(self.states)
            self.sequence(inner, flags)
            if len(self.states) == before:
                # Nothing, however often it is repeated, remains nothing.
                break
        if str(most) == "MAXREPEAT":
            start = len(self.states)
            fork = self.add(_State(to=[start + 1]))
            self.sequence(inner, flags)
            self.add(_State(to=[start]))
            fork.to.append(len(self.states))
            return
        forks = []
        for _ in range(most - least):
            forks.append(self.add(_State(to=[len(self.states) + 1])))
            self.sequence(inner, flags)
        for fork in forks:
            fork.to.append(len(self.states))


_POSITIONS: Final[Mapping[str, _Holds]] = {
    "AT_BEGINNING": lambda text, index: index == 0,
    "AT_BEGINNING_STRING": lambda text, index: index == 0,
    "AT_END": lambda text, index: index == len(text),
    "AT_END_STRING": lambda text, index: index == len(text),
    "AT_BOUNDARY": lambda text, index: _is_boundary(text, index),
    "AT_NON_BOUNDARY": lambda text, index: not _is_boundary(text, index),
}
_CATEGORIES: Final[Mapping[str, _Accepts]] = {
    "CATEGORY_DIGIT": lambda c: "0" <= c <= "9",
    "CATEGORY_NOT_DIGIT": lambda c: not "0" <= c <= "9",
    "CATEGORY_SPACE": lambda c: c in " \t\n\r\f\v",
    "CATEGORY_NOT_SPACE": lambda c: c not in " \t\n\r\f\v",
    "CATEGORY_WORD": lambda c: _is_word(c),
    "CATEGORY_NOT_WORD": lambda c: not _is_word(c),
}


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


def _is_boundary(text: str, index: int) -> bool:
    return (index > 0 and _is_word(text[index - 1])) != (index < len(text) and _is_word(text[index]))


def _character(operation: str, value: Any, *, is_folded: bool) -> _Accepts:
    """Return what accepts a character; with ``is_folded``, upper and lower case are the same."""
    match operation:
        case "LITERAL":
            return _folded(chr(value).__eq__) if is_folded else chr(value).__eq__
        case "NOT_LITERAL":
            return _negated(_character("LITERAL", value, is_folded=is_folded))
        case "ANY":
            # A topic name has no line breaks.
            return lambda c: True
        case "RANGE":
            return _folded(_within(*value)) if is_folded else _within(*value)
        case "CATEGORY":
            return _CATEGORIES[str(value)]
        case "IN":
            is_negated = str(value[0][0]) == "NEGATE"
            items = [_character(str(kind), inner, is_folded=is_folded) for kind, inner in value[is_negated:]]
            return lambda c: any(accepts(c) for accepts in items) != is_negated
        case _:
            what = operation.lower().replace("_", " ")
            raise PatternError(f"{what}: it is not supported, because it cannot be matched in linear time")


def _folded(accepts: _Accepts) -> _Accepts:
    return lambda c: accepts(c.lower()) or accepts(c.upper())


def _negated(accepts: _Accepts) -> _Accepts:
    return lambda c: not accepts(c)


def _within(first: int, last: int) -> _Accepts:
    return lambda c: first <= ord(c) <= last
