"""Rules of compatibility: each row is an earlier schema, a later one, and whether it may follow, by level."""

import json

import pytest

from streams.registry import AVRO, JSON, PROTOBUF, Schema, differences, protobuf_file


def rec(*fields, name="R"):
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields],
    }


A, OPTIONAL = ("a", "int"), ("b", "string", "")
TREE = rec(("next", ["null", "R"], None))
AVRO_CASES = {
    "field with a default": (rec(A), rec(A, OPTIONAL), True, True),
    "field without": (rec(A), rec(A, ("b", "string")), False, True),
    "removed field": (rec(A, ("b", "string")), rec(A), True, False),
    "promotion": (rec(A), rec(("a", "long")), True, False),
    "string and bytes": (rec(("a", "string")), rec(("a", "bytes")), True, True),
    "other type": (rec(A), rec(("a", "string")), False, False),
    "wider union": (rec(("a", ["null", "int"])), rec(("a", ["null", "int", "string"])), True, False),
    "into a union": (rec(A), rec(("a", ["null", "int"])), True, False),
    "symbols": (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]}, True, False,
    ),
    "symbols with a default": (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, True, True,
    ),
    "name": (rec(A), rec(A, name="S"), False, False),
    "alias": (rec(A), {**rec(A, name="S"), "aliases": ["R"]}, True, False),
    "namespace": (rec(A), {**rec(A), "namespace": "n"}, True, True),
    "renamed field": (rec(A), {**rec(), "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]}, True, False),
    "fixed": ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, False, False),
    "arrays": ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True, False),
    "maps": ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False, False),
    "recursion": (TREE, rec(("next", ["null", "R"], None), OPTIONAL), True, True),
    "recursion that breaks": (TREE, rec(("next", ["null", "R"], None), ("b", "int")), False, True),
}  # fmt: skip


def obj(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


INT, TEXT = {"type": "integer"}, {"type": "string"}
JSON_CASES = {
    "optional in closed": (
        obj({"a": INT}, additionalProperties=False),
        obj({"a": INT, "b": TEXT}, additionalProperties=False), True, False,
    ),
    "optional in open": (obj({"a": INT}), obj({"a": INT, "b": TEXT}), False, True),
    "anything in open": (obj({"a": INT}), obj({"a": INT, "b": {}}), True, True),
    "required": (obj({"a": INT}), obj({"a": INT}, ["a"]), False, True),
    "required with a default": (obj({"a": INT}), obj({"a": {**INT, "default": 1}}, ["a"]), True, True),
    "integer to number": (INT, {"type": "number"}, True, False),
    "type": (INT, TEXT, False, False),
    "type list": (INT, {"type": ["integer", "null"]}, True, False),
    "maximum raised": ({**INT, "maximum": 5}, {**INT, "maximum": 6}, True, False),
    "minLength": (TEXT, {**TEXT, "minLength": 1}, False, True),
    "pattern": ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, False, False),
    "enum": ({"enum": ["a"]}, {"enum": ["a", "b"]}, True, False),
    "anyOf": ({"anyOf": [INT]}, {"anyOf": [INT, TEXT]}, True, False),
    "into anyOf": (INT, {"anyOf": [INT, {"type": "null"}]}, True, False),
    "items": ({"type": "array", "items": INT}, {"type": "array", "items": {"type": "number"}}, True, False),
    "title": (obj({"a": INT}, title="x"), obj({"a": INT}, title="y"), True, True),
    "reference": (
        {"$defs": {"x": INT}, **obj({"a": {"$ref": "#/$defs/x"}}, additionalProperties=False)},
        obj({"a": INT}, additionalProperties=False), True, True,
    ),
    "nested": (obj({"a": obj({"b": INT})}), obj({"a": obj({"b": TEXT})}), False, False),
    "closing": (obj({"a": INT}), obj({"a": INT}, additionalProperties=False), False, True),
}  # fmt: skip


def proto(body, syntax="proto3", **more):
    return f'syntax = "{syntax}"; message M {{ {body} }}'


PROTOBUF_CASES = {
    "new field": (proto("int32 a = 1;"), proto("int32 a = 1; string b = 2;"), True, True),
    "renamed": (proto("int32 a = 1;"), proto("int32 b = 1;"), True, True),
    "alike": (proto("int32 a = 1;"), proto("int64 a = 1;"), True, True),
    "other encoding": (proto("int32 a = 1;"), proto("sint32 a = 1;"), False, False),
    "text": (proto("string a = 1;"), proto("bytes a = 1;"), True, True),
    "scalar to message": (proto("int32 a = 1;"), proto("N a = 1; message N {}"), False, False),
    "other message": (
        proto("N a = 1; message N {} message O {}"), proto("O a = 1; message N {} message O {}"), False, False,
    ),
    "removed message": (proto("message N {}"), proto(""), False, True),
    "required added": (proto("", "proto2"), proto("required int32 a = 1;", "proto2"), False, False),
    "into a new oneof": (proto("int32 a = 1;"), proto("oneof x { int32 a = 1; }"), True, True),
    "two into a oneof": (
        proto("int32 a = 1; int32 b = 2;"), proto("oneof x { int32 a = 1; int32 b = 2; }"), False, True,
    ),
    "optional": (proto("optional int32 a = 1;"), proto("optional int32 a = 1; optional int32 b = 2;"), True, True),
    "nested": (
        proto("N a = 1; message N { int32 x = 1; }"), proto("N a = 1; message N { string x = 1; }"), False, False,
    ),
    "map": (proto("map<string, int32> a = 1;"), proto("map<string, string> a = 1;"), False, False),
}  # fmt: skip

CASES = [
    *((AVRO, name, *case) for name, case in AVRO_CASES.items()),
    *((JSON, name, *case) for name, case in JSON_CASES.items()),
    *((PROTOBUF, name, *case) for name, case in PROTOBUF_CASES.items()),
]


@pytest.mark.parametrize(("kind", "name", "old", "new", "backward", "forward"), CASES, ids=lambda it: str(it)[:24])
def test_rule(kind, name, old, new, backward, forward):
    earlier, later = ((Schema(kind, it if isinstance(it, str) else json.dumps(it)), {}) for it in (old, new))

    found = {level: differences(level, later, earlier) for level in ("BACKWARD", "FORWARD", "FULL", "NONE")}

    assert {level: not problems for level, problems in found.items()} == {
        "BACKWARD": backward,
        "FORWARD": forward,
        "FULL": backward and forward,
        "NONE": True,
    }, found


def test_another_type_of_schema_is_incompatible():
    assert differences("BACKWARD", (Schema(JSON, "{}"), {}), (Schema(AVRO, '"int"'), {})) != []


@pytest.mark.parametrize("is_compatible", [True, False])
def test_parts_that_are_referenced_twice_are_compared_once(is_compatible):
    """Each level doubles the ways to the last one; 60 levels end at once or never."""

    def levels(last, title):
        parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
        document = {"$ref": "#/$defs/d0", "title": title, "$defs": {**parts, "d60": last}}
        return Schema(JSON, json.dumps(document)), {}

    later = levels({"type": ["integer", "string"] if is_compatible else "string"}, "later")

    assert (differences("BACKWARD", later, levels(INT, "earlier")) == []) is is_compatible


def test_options_of_protobuf_are_skipped_to_their_end():
    text = """syntax = "proto2"; enum E { A = 0 [(opt) = {list: [1, 2]}, deprecated = true]; B = 1; }
    message M { extensions 4 to 10 [declaration = {number: 4}]; optional E e = 1 [(o) = {l: [1]}, default = B]; }"""

    file = protobuf_file(Schema(PROTOBUF, text), {})

    assert list(file.enum_types_by_name["E"].values_by_name) == ["A", "B"]
    assert file.message_types_by_name["M"].fields_by_name["e"].default_value == 1
