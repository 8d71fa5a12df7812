"""Pickling of msgspec classes: the worker creates them from their fields.

cloudpickle creates a class first and sets its annotations later, but msgspec reads the fields from the
annotations when the class is created, and would find none.  The module ``work`` uses this module.
"""

import inspect
import typing
from collections.abc import Callable
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

_StructMeta: Any = type(msgspec.Struct)
#: The class in which msgspec wraps a ``default_factory``.
_Factory = type(
    msgspec.defstruct("Example", [("one", list, msgspec.field(default_factory=list))]).__struct_defaults__[0]
)
#: Keyword arguments of a class declaration.
_OPTIONS = (
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
)
#: Attributes that msgspec and Python set themselves, and those passed when the class is created.
_MADE = {
    "__annotations__",
    "__dict__",
    "__match_args__",
    "__module__",
    "__msgspec_cache__",
    "__orig_bases__",
    "__post_init__",
    "__qualname__",
    "__rename__",
    "__signature__",
    "__slots__",
    "__weakref__",
}

#: Names of the sent classes, assigned when first sent, and the recreated classes by name: one per sent class.
_names: "WeakKeyDictionary[type, str]" = WeakKeyDictionary()
_known: "WeakValueDictionary[str, type]" = WeakValueDictionary()


def is_struct(thing: object) -> bool:
    """Return whether an object is a ``msgspec.Struct`` class."""
    return isinstance(thing, _StructMeta)


def reduced_struct(struct: Any) -> tuple[Any, ...]:
    """Return the ``__reduce__`` value of a struct class; attributes that may refer to the class itself are set last."""
    own = _own_fields(struct)
    defaults = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__), strict=False))
    namespace = {"__module__": struct.__module__, "__qualname__": struct.__qualname__}
    own_defaults = {
        name: defaults[name] for name in own if defaults.get(name, msgspec.NODEFAULT) is not msgspec.NODEFAULT
    }
    factories = {name: value.factory for name, value in own_defaults.items() if type(value) is _Factory}
    namespace |= {name: value for name, value in own_defaults.items() if name not in factories}
    if "__orig_bases__" in vars(struct):
        namespace["__orig_bases__"] = struct.__orig_bases__
    options = {name: getattr(struct.__struct_config__, name) for name in _OPTIONS}
    encoded = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
    options["rename"] = {name: text for name, text in encoded.items() if name != text} or None
    parameters = inspect.signature(struct).parameters
    options["kw_only"] = any(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in own)
    post_init = vars(struct).get("__post_init__")
    later = {name: value for name, value in vars(struct).items() if _is_carried(name, own)}
    name = _names.setdefault(struct, uuid4().hex)
    making = (name, struct.__name__, struct.__bases__, namespace, factories, options, own, post_init is not None)
    return _recreated, making, (_annotations(struct), later, post_init), None, None, _completed


def _own_fields(struct: Any) -> tuple[str, ...]:
    """Return the names of the fields that a struct class itself declares, without inherited fields."""
    declared = vars(struct).get("__annotations__", {})
    return tuple(name for name in declared if name in struct.__struct_fields__)


def _is_carried(name: str, own: tuple[str, ...]) -> bool:
    return name not in _MADE and name not in own and not name.startswith("__struct_")


def _annotations(struct: Any) -> dict[str, Any]:
    """Return the resolved types of the own fields of a class, since the worker lacks the module to resolve them."""
    declared = dict(vars(struct).get("__annotations__", {}))
    if any(isinstance(kind, str) for kind in declared.values()):
        try:
            hints = typing.get_type_hints(struct, include_extras=True)
        except (NameError, TypeError):
            return declared
        declared = {name: hints.get(name, kind) for name, kind in declared.items()}
    return declared


def _recreated(
    name: str,
    title: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
    factories: dict[str, Callable[[], Any]],
    options: dict[str, Any],
    own: tuple[str, ...],
    has_post_init: bool,
) -> type:
    struct = _known.get(name)
    if struct is None:
        content = namespace | {"__annotations__": dict.fromkeys(own, Any)}
        content |= {field: msgspec.field(default_factory=factory) for field, factory in factories.items()}
        if has_post_init:
            content["__post_init__"] = _PostInit()
        struct = _known[name] = _StructMeta(title, bases, content, **options)
    return struct


def _completed(struct: Any, state: tuple[dict[str, Any], dict[str, Any], Callable[[Any], None] | None]) -> None:
    annotations, later, post_init = state
    struct.__annotations__ = annotations
    for name, value in later.items():
        setattr(struct, name, value)
    if post_init is not None:
        vars(struct)["__post_init__"].function = post_init


class _PostInit:
    """A placeholder for a struct class's ``__post_init__``, which msgspec looks up only when the class is created."""

    function: Callable[[Any], None]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)

    def __call__(self, instance: Any) -> None:
        self.function(instance)
