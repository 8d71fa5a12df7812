"""The types of settings are those of the table."""

import os
from collections.abc import Callable
from datetime import timedelta
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from streams.core.config import SETTINGS
from streams.core.settings import Settings

_TYPES: dict[str, Any] = Settings.__annotations__


def _parts(form: Any) -> list[Any]:
    """Return the members of a union, those of unions within included."""
    if get_origin(form) not in (Union, UnionType):
        return [form]
    return [part for member in get_args(form) for part in _parts(member)]


def test_types_are_those_of_all_settings_but_the_application_id() -> None:
    assert list(_TYPES) == [name for name in SETTINGS if name != "application_id"], "write it into core/settings.py"


@pytest.mark.parametrize("name", _TYPES)
def test_type_of_a_setting_is_what_the_table_accepts(name: str) -> None:
    setting, parts = SETTINGS[name], _parts(_TYPES[name])

    if setting.kind == "choice":
        words = {word for part in parts if get_origin(part) is Literal for word in get_args(part)}
        assert {str(word) for word in words} == set(setting.choices)
        assert any(get_origin(part) is not Literal for part in parts) is setting.takes_function
    elif setting.kind == "text":
        assert str in parts
        allowed = {str, os.PathLike[str], list[str], tuple[str, ...]}
        assert set(parts) <= allowed
    else:
        assert set(parts) == ({int, timedelta} if setting.unit == "ms" else {int})


def test_functions_are_taken_where_the_table_says_so() -> None:
    functions = {name for name, form in _TYPES.items() if any(get_origin(part) is Callable for part in _parts(form))}

    assert functions == {name for name, setting in SETTINGS.items() if setting.takes_function}
