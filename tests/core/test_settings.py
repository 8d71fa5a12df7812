"""The types of settings are those of the table."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from streams.broker.logs.config import BrokerConfig, BrokerOptions
from streams.core.settings.client_settings import (
    ConnectionSettings,
    ConsumerSettings,
    GroupClientSettings,
    ParallelSettings,
    ProducerSettings,
)
from streams.core.settings.config import SETTINGS
from streams.core.settings.setting import Setting, table_of
from streams.core.settings.settings import (
    ConnectionOptions,
    ConsumerOptions,
    GroupClientOptions,
    ParallelOptions,
    ProducerOptions,
    Settings,
)

_PAIRS: list[tuple[Any, Mapping[str, Setting]]] = [
    (Settings, {name: setting for name, setting in SETTINGS.items() if name != "application_id"}),
    (ConsumerOptions, table_of(ConsumerSettings)),
    (ProducerOptions, table_of(ProducerSettings)),
    (ParallelOptions, {**table_of(ConsumerSettings), **table_of(ParallelSettings)}),
    (ConnectionOptions, table_of(ConnectionSettings)),
    (GroupClientOptions, table_of(GroupClientSettings)),
    (BrokerOptions, {name: row for name, row in table_of(BrokerConfig).items() if row.doc and name != "node_id"}),
]
_ROWS = [
    (setting, form)
    for types, table in _PAIRS
    for name, form in types.__annotations__.items()
    if (setting := table.get(name))
]


def _parts(form: Any) -> list[Any]:
    """Return the members of a union, those of unions within included."""
    if get_origin(form) not in (Union, UnionType):
        return [form]
    return [part for member in get_args(form) for part in _parts(member)]


@pytest.mark.parametrize(("types", "table"), _PAIRS, ids=[types.__name__ for types, _ in _PAIRS])
def test_types_are_those_of_all_settings_but_the_application_id(types: Any, table: Mapping[str, Setting]) -> None:
    assert set(types.__annotations__) == set(table), "write it into core/settings/settings.py"


@pytest.mark.parametrize(("setting", "form"), _ROWS, ids=[setting.name for setting, _ in _ROWS])
def test_type_of_a_setting_is_what_the_table_accepts(setting: Setting, form: Any) -> None:
    parts = [part for part in _parts(form) if part is not NoneType]

    assert (len(parts) < len(_parts(form))) is (setting.takes_none or setting.none_text != "")
    if setting.kind == "choice":
        words = {word for part in parts if get_origin(part) is Literal for word in get_args(part)}
        assert {setting.synonyms.get(str(word), str(word)) for word in words} == set(setting.choices)
        assert any(get_origin(part) is not Literal for part in parts) is (setting.takes_function is not None)
    elif setting.kind == "text":
        assert str in parts
        assert set(parts) <= {str, os.PathLike[str], list[str], tuple[str, ...], Mapping[str, str]}
        assert (Mapping[str, str] in parts) is setting.of_pairs
        assert (list[str] in parts) is setting.joins
    elif setting.kind == "bool":
        assert parts == [bool]
    else:
        assert set(parts) == ({int, timedelta} if setting.unit == "ms" else {int})


def test_functions_are_taken_where_the_table_says_so() -> None:
    types = Settings.__annotations__
    functions = {name for name, form in types.items() if any(get_origin(part) is Callable for part in _parts(form))}

    assert functions == {name for name, setting in SETTINGS.items() if setting.takes_function is not None}
