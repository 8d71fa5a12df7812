"""Any message of any version, as the tables describe it."""

from hypothesis import strategies as st

from streams.protocol.error_codes import ErrorCode
from streams.protocol.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UUID,
    Array,
    Bytes,
    Fixed,
    Struct,
    Text,
)
from streams.protocol.wire.apis import APIS

#: Every message: API key, version, direction.
ALL = [
    (api.key, version, kind)
    for api in APIS.values()
    for version in range(api.versions[0], api.versions[1] + 1)
    for kind in ("request", "response")
]

_CODES = st.sampled_from([code.value for code in ErrorCode])
_FIXED = {
    BOOLEAN: st.booleans(),
    FLOAT64: st.floats(allow_nan=False),
    INT8: st.integers(-(2**7), 2**7 - 1),
    INT16: st.integers(-(2**15), 2**15 - 1),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    UUID: st.binary(min_size=16, max_size=16),
}
# Long ones too, whose compact length takes two bytes.
_TEXT = st.text(max_size=6) | st.just("x" * 127) | st.just("é" * 100)
_BYTES = st.binary(max_size=10) | st.just(bytes(200))


def message_of(api_key, kind):
    return getattr(APIS[api_key], kind)


def values(fields, version):
    """Messages with these fields; absent ones have their defaults, as when they are read."""
    return st.fixed_dictionaries({field.name: value(field, version) for field in fields})


def value(field, version):
    if not field.is_in(version):
        return st.just(field.absent)
    if field.name.endswith("error_code"):
        return _CODES
    if field.name == "transaction_start_time_ms":
        # That none is open is -1, of which the oracle cannot make a time.
        return st.integers(0, 2**40)
    if field.type is INT64 and field.name.endswith("time_ms"):
        # The oracle makes times of them, which have an end.
        return st.integers(-1, 2**40)
    drawn = _typed(field.type, version)
    if isinstance(field.type, Array) and field.tag is not None:
        drawn = drawn.map(lambda items: items or ())
    is_nullable = field.is_nullable(version) or (field.tag is not None and isinstance(field.type, Struct))
    return st.none() | drawn if is_nullable else drawn


def _typed(type_, version):
    match type_:
        case Fixed():
            return _FIXED[type_]
        case Text():
            return _TEXT
        case Bytes():
            return _BYTES
        case Array(of=of):
            return st.lists(_typed(of, version), max_size=3) | _long(of)
        case Struct(fields=fields):
            return values(fields, version)


def _long(of):
    """Arrays whose compact count takes two bytes."""
    return st.just([7] * 130) if of is INT32 else st.nothing()
