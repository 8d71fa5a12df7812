"""Classes of msgspec in another process: what they are there.

The function under test defines its classes itself, so they travel by value as those of a script do.
"""

import subprocess
import sys
from typing import ClassVar, Generic, TypeVar

import msgspec
import pytest
from msgspec import Struct

from streams.replay.calls.work import pickled

T = TypeVar("T")


def elsewhere(function):
    """Return what a function returns in a process that knows nothing but its pickle."""
    program = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickled(function, "the test"), capture_output=True, check=False
    )
    assert not done.returncode, done.stderr.decode()
    return done.stdout.decode()


def plain():
    class Bid(Struct, frozen=True):
        auction: int
        price: int
        channel: str = "web"
        tags: list[str] = []

    return lambda: repr([Bid(1, 2), msgspec.json.decode(b'{"auction":3,"price":4}', type=Bid) == Bid(3, 4)])


def methods_and_inheritance():
    class Shape(Struct, tag_field="kind", tag="shape"):
        SIDES: ClassVar[int] = 0
        name: str

        def title(self):
            return f"{self.name} with {self.SIDES}"

    class Square(Shape, tag="square", kw_only=True):
        SIDES: ClassVar[int] = 4
        side: int

        def __post_init__(self):
            self.side += 1

        def title(self):
            return super().title() + f" of {self.side}"

        @classmethod
        def of(cls, side):
            return cls("square", side=side)

        @property
        def area(self):
            return self.side**2

    def use():
        square = Square.of(1)
        return repr([square, square.title(), square.area, msgspec.json.encode(square)])

    return use


def names_and_defaults():
    class Row(Struct, rename="camel", omit_defaults=True, order=True):
        row_number: int
        found_in: dict[str, int] = msgspec.field(default_factory=dict)

    return lambda: repr(
        [msgspec.json.encode(Row(1)), msgspec.json.decode(b'{"rowNumber":2}', type=Row), Row(1) < Row(2)]
    )


def types_are_checked():
    class Box(Struct, Generic[T], array_like=True):
        item: T

    def use():
        try:
            return repr(msgspec.json.decode(b'["x"]', type=Box[int]))
        except msgspec.ValidationError as error:
            return str(error)

    return use


@pytest.mark.slow
@pytest.mark.parametrize("case", [plain, methods_and_inheritance, names_and_defaults, types_are_checked])
def test_a_class_is_elsewhere_what_it_is_here(case):
    function = case()

    assert elsewhere(function) == function()


class Node(Struct, frozen=True):
    """A class that names itself, in its types and in its methods."""

    value: int
    rest: "Node | None" = None

    def pushed(self, value: int) -> "Node":
        return Node(value, self)


@pytest.mark.slow
def test_a_class_may_name_itself():
    def use():
        both = Node(1).pushed(2)
        return repr([both, msgspec.json.decode(msgspec.json.encode(both), type=Node) == both])

    assert elsewhere(use) == use()


def test_a_class_that_comes_twice_is_one():
    class Bid(Struct):
        auction: int

    def use():
        return Bid

    import pickle

    data = pickled(use, "the test")

    assert pickle.loads(data)() is pickle.loads(data)()
