"""Regular expressions of subscriptions: what they match, and that no expression costs more than its size."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.group.epochs.topic_patterns import MAX_STATES, PatternError, compiled

ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "\\.", "[ab]", "[^a]", "[a-c0-9]", "\\d", "\\w", "\\W", "^", "$", "\\b", ""]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("({0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"])).map("(?:{0[0]}){0[1]}".format),
        inner.map("(?i:{})".format),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS, st.lists(st.text("abcABC019._-", max_size=10), max_size=8))
def test_same_names_match_as_with_the_expressions_of_python(expression: str, names: list[str]):
    pattern = compiled(expression)
    # ``\\Z`` of Python is what ``$`` means in names, which have no line breaks.
    assert [pattern.matches(name) for name in names] == [bool(re.fullmatch(expression, name, re.A)) for name in names]


@pytest.mark.case(3)
@pytest.mark.parametrize(
    "expression",
    ["(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*b", "(a?){400}b", "(.*a){12}b", "((a+)+)+b", "(){4000000000}b"],
)
def test_expression_that_backtracks_is_matched_in_linear_time(expression: str):
    """Counted in lines executed, which no other load of the machine changes."""
    pattern, lines = compiled(expression), 0

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        found = pattern.matches("a" * 249), pattern.matches("a" * 248 + "b")
    finally:
        sys.settrace(tracer)
    assert found[0] is False
    assert lines < 20 * 2 * 249 * MAX_STATES


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(", "unterminated"),
        (r"(a)\1", "groupref: it is not supported"),
        ("(?=a)a", "assert: it is not supported"),
        ("(?<!a)b", "assert not: it is not supported"),
        ("(?>a*)a", "atomic group: it is not supported"),
        ("a*+a", "possessive repeat: it is not supported"),
        ("(a{100}){100}", "more than 1000 states"),
        ("a{100000}", "more than 1000 states"),
        ("(" * 5_000 + ")" * 5_000, "nested too deeply"),
    ],
)
def test_expression_that_is_invalid_or_needs_backtracking_is_refused(expression: str, why: str):
    with pytest.raises(PatternError, match=why):
        compiled(expression)
