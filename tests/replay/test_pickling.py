"""What a user's module defines arrives whole in a process that does not have the module."""

import sys
import textwrap

import pytest

from streams.replay.calls.work import pickled
from tests import programs

MODULE = """
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import msgspec
from attrs import frozen


class Colour(Enum):
    RED = "red"


class Item(msgspec.Struct, frozen=True, rename="camel"):
    unit_price: int
    tags: list[str] = []
    colour: Colour | None = None
    more: Item | None = None

    def __post_init__(self):
        if self.unit_price < 0:
            raise ValueError("negative")

    @property
    def price(self) -> int:
        return self.unit_price + (self.more.price if self.more else 0)


class Offer(Item, tag=True, kw_only=True, frozen=True, rename="camel"):
    until_day: Annotated[str, msgspec.Meta(min_length=3, extra={"unit": "day"})]
    notes: dict[str, int] = msgspec.field(default_factory=dict, name="NOTES")

    def named(self) -> str:
        return Offer.__name__


@frozen
class Order:
    items: list[Item]
    first: Order | None = None


@dataclass(slots=True)
class Basket:
    orders: list[Order]


def total(basket: Basket) -> list[Item]:
    return [item for order in basket.orders for item in order.items]
"""

PROGRAM = """
import pickle, sys, typing
import msgspec

def decode(kind, text):
    return msgspec.json.decode(text, type=kind)

{body}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's, whose classes decoders have looked into already."""
    import importlib

    import msgspec

    (tmp_path / "wares.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    wares = importlib.import_module("wares")
    for name in ("Item", "Offer", "Order", "Basket"):
        msgspec.json.Decoder(getattr(wares, name))
    yield wares
    del sys.modules["wares"]


@pytest.fixture
def there(module, tmp_path):
    """Run lines in another process, which has no such module but ``given``."""

    def run(name: str, body: str) -> str:
        path = tmp_path / "travelling"
        path.write_bytes(pickled(getattr(module, name), name))
        body = f"given = pickle.loads(open({str(path)!r}, 'rb').read())\n{textwrap.dedent(body)}"
        done = programs.run(["-c", PROGRAM.format(body=body)], cwd="/")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_struct_keeps_fields_names_defaults_and_methods(there):
    body = """
    item = decode(given, b'{"unitPrice": 3, "colour": "red", "more": {"unitPrice": 4}}')
    encoded = msgspec.json.encode(item.more).decode()
    print(item.price, item.tags, item.colour.name, encoded, given.__struct_config__.frozen)
    try:
        given(-1)
    except ValueError as error:
        print(error)
    """
    assert there("Item", body).splitlines() == [
        '7 [] RED {"unitPrice":4,"tags":[],"colour":null,"more":null} True',
        "negative",
    ]


def test_struct_on_a_struct_keeps_its_tag_and_keywords(there):
    body = """
    offer = decode(given, b'{"type": "Offer", "unitPrice": 3, "untilDay": "mon"}')
    print(offer.named(), offer.price, offer.notes, msgspec.json.encode(given(5, until_day="tue")).decode())
    """
    assert there("Offer", body) == (
        'Offer 3 {} {"type":"Offer","unitPrice":5,"tags":[],"colour":null,"more":null,"untilDay":"tue","NOTES":{}}'
    )


def test_constraints_of_types_hold(there):
    body = """
    print(typing.get_type_hints(given, include_extras=True)["until_day"].__metadata__[0].extra)
    try:
        decode(given, b'{"type": "Offer", "unitPrice": 3, "untilDay": "mo"}')
    except msgspec.ValidationError as error:
        print(error)
    """
    assert there("Offer", body).splitlines() == [
        "{'unit': 'day'}",
        "Expected `str` of length >= 3 - at `$.untilDay`",
    ]


@pytest.mark.parametrize("name", ["Order", "Basket"])
def test_annotations_that_are_text_find_what_they_name(there, name):
    text = {"Order": '{"items": [{"unitPrice": 3}]}', "Basket": '{"orders": [{"items": [{"unitPrice": 3}]}]}'}[name]
    body = f"""
    found = decode(given, b'{text}')
    print((found.orders[0] if hasattr(found, "orders") else found).items[0].price)
    """
    assert there(name, body) == "3"


def test_function_can_be_asked_for_its_types(there):
    assert there("total", "print(typing.get_type_hints(given)['return'])") == "list[wares.Item]"
