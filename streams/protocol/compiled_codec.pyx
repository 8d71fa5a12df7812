# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The loops of ``plain_codec`` once more, compiled: the same bytes, the same columns, the same refusals.

Optional: where there was no C compiler at installation, ``record_codec`` goes on with the plain loops.
Every read is bounded by the end of the bytes, every write by sizes that were counted before.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streams.protocol.plain_codec import Columns, decode_headers, encode_headers


# --- encoding -----------------------------------------------------------------------------


cdef inline uint64_t _zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int _size(uint64_t rest) noexcept nogil:
    cdef int size = 1
    while rest > 127:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t* _put(uint8_t* to, uint64_t rest) noexcept nogil:
    while rest > 127:
        to[0] = <uint8_t>(rest & 127) | 128
        to += 1
        rest >>= 7
    to[0] = <uint8_t>rest
    return to + 1


cdef list _columns_of_bytes(object column):
    """Return the column with other buffers copied to bytes.

    Raises:
        TypeError: something in it is no buffer.
    """
    cdef list found = column if type(column) is list else list(column)
    for item in found:
        if item is not None and type(item) is not bytes:
            return [item if item is None else bytes(memoryview(item)) for item in found]
    return found


cdef list _sections(object headers):
    """Return the bytes of each record's headers; records of one origin carry the same again and again."""
    cdef dict known = {(): b"\0"}
    cdef list sections = []
    for row in headers:
        try:
            section = known.get(row)
            if section is None:
                section = known[row] = encode_headers(row)
        except TypeError:
            # Lists and bytearrays do as well, but cannot be remembered.
            section = encode_headers(row)
        sections.append(section)
    return sections


def encode_records(object block, int64_t base_timestamp, object deltas):
    """Return the records of a block one after another; ``deltas`` are their offsets from the batch's first."""
    cdef list keys = _columns_of_bytes(block.keys)
    cdef list values = _columns_of_bytes(block.values)
    cdef list timestamps = list(block.timestamps)
    cdef list offsets = list(deltas)
    cdef list sections = None if block.headers is None else _sections(block.headers)
    cdef Py_ssize_t count = len(keys), index, key_size, value_size, section_size, total = 0
    if len(values) != count or len(timestamps) != count or len(offsets) != count:
        raise ValueError("columns of different lengths")
    if sections is not None and len(sections) != count:
        raise ValueError("columns of different lengths")
    cdef list bodies = [None] * count
    cdef Py_ssize_t body
    cdef object key, value
    cdef bytes section
    for index in range(count):
        key, value = keys[index], values[index]
        key_size = 0 if key is None else PyBytes_GET_SIZE(key)
        value_size = 0 if value is None else PyBytes_GET_SIZE(value)
        section_size = 1 if sections is None else PyBytes_GET_SIZE(sections[index])
        body = (
            1
            + _size(_zigzag(<int64_t>timestamps[index] - base_timestamp))
            + _size(_zigzag(<int64_t>offsets[index]))
            + _size(1 if key is None else <uint64_t>key_size << 1)
            + key_size
            + _size(1 if value is None else <uint64_t>value_size << 1)
            + value_size
            + section_size
        )
        bodies[index] = body
        total += _size(<uint64_t>body << 1) + body
    cdef bytes records = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(records)
    for index in range(count):
        key, value = keys[index], values[index]
        body = bodies[index]
        to = _put(to, <uint64_t>body << 1)
        to[0] = 0
        to = _put(to + 1, _zigzag(<int64_t>timestamps[index] - base_timestamp))
        to = _put(to, _zigzag(<int64_t>offsets[index]))
        if key is None:
            to[0] = 1
            to += 1
        else:
            key_size = PyBytes_GET_SIZE(key)
            to = _put(to, <uint64_t>key_size << 1)
            memcpy(to, PyBytes_AS_STRING(key), key_size)
            to += key_size
        if value is None:
            to[0] = 1
            to += 1
        else:
            value_size = PyBytes_GET_SIZE(value)
            to = _put(to, <uint64_t>value_size << 1)
            memcpy(to, PyBytes_AS_STRING(value), value_size)
            to += value_size
        if sections is None:
            to[0] = 0
            to += 1
        else:
            section = sections[index]
            section_size = PyBytes_GET_SIZE(section)
            memcpy(to, PyBytes_AS_STRING(section), section_size)
            to += section_size
    return records


# --- decoding -----------------------------------------------------------------------------


cdef struct Cursor:
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t position


cdef inline int64_t _take(Cursor* cursor) except? -1:
    """Read one zigzag varint.

    Raises:
        IndexError: it goes beyond the end.
        ValueError: it has more than 10 bytes.
    """
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if cursor.position >= cursor.size:
            raise IndexError(cursor.position)
        byte = cursor.data[cursor.position]
        cursor.position += 1
        raw |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than 10 bytes")


cdef inline object _take_bytes(Cursor* cursor):
    """Read bytes behind their length, None where that is negative.

    Raises:
        IndexError: they go beyond the end.
    """
    cdef int64_t size = _take(cursor)
    if size < 0:
        return None
    if size > cursor.size - cursor.position:
        raise IndexError(cursor.position)
    cdef const uint8_t* start = cursor.data + cursor.position
    cursor.position += size
    return PyBytes_FromStringAndSize(<const char*>start, size)


def decode_records(bytes data not None, Py_ssize_t count, int64_t base_timestamp):
    """Return the columns of ``count`` records that take up all of the bytes.

    Raises:
        IndexError: a length does not fit, or bytes are left over.
        ValueError: a number is too long, or a header's name no UTF-8.
    """
    cdef Cursor cursor
    cursor.data = <const uint8_t*>PyBytes_AS_STRING(data)
    cursor.size = PyBytes_GET_SIZE(data)
    cursor.position = 0
    cdef list keys = [], values = [], timestamps = []
    # Made only where the offsets do not count through.
    cdef list deltas = None
    cdef dict with_headers = {}, sections = {}
    cdef Py_ssize_t index, end
    cdef int64_t length, delta
    for index in range(count):
        length = _take(&cursor)
        if length < 0 or length > cursor.size - cursor.position:
            raise IndexError(cursor.position)
        end = cursor.position + length
        # One byte of record attributes is skipped: it has no meaning so far.
        cursor.position += 1
        timestamps.append(base_timestamp + _take(&cursor))
        delta = _take(&cursor)
        if delta != index and deltas is None:
            deltas = list(range(index))
        if deltas is not None:
            deltas.append(delta)
        keys.append(_take_bytes(&cursor))
        values.append(_take_bytes(&cursor))
        if cursor.position >= end:
            raise IndexError(cursor.position)
        if cursor.data[cursor.position]:
            # What is left of the record; the same as that of others as a rule.
            section = data[cursor.position : end]
            row = sections.get(section)
            if row is None:
                row = sections[section] = decode_headers(section)
            with_headers[index] = row
            cursor.position = end
        else:
            cursor.position += 1
        if cursor.position != end:
            raise IndexError(cursor.position)
    if cursor.position != cursor.size:
        raise IndexError(cursor.position)
    return Columns(
        keys,
        values,
        timestamps,
        [with_headers.get(index, ()) for index in range(count)] if with_headers else None,
        deltas,
    )


cdef inline int _pass_bytes(Cursor* cursor) except -1:
    """Go behind bytes and their length.

    Raises:
        IndexError: they go beyond the end.
    """
    cdef int64_t size = _take(cursor)
    if size > 0:
        if size > cursor.size - cursor.position:
            raise IndexError(cursor.position)
        cursor.position += size
    return 0


def check_records(bytes data not None, Py_ssize_t position, Py_ssize_t count):
    """See that ``decode_records`` can read the bytes from a position on, and that their offsets count through from 0.

    Raises:
        IndexError: a length does not fit, or bytes are left over.
        ValueError: a number is too long, a header's name no UTF-8, or an offset out of turn.
    """
    cdef Cursor cursor
    cursor.data = <const uint8_t*>PyBytes_AS_STRING(data)
    cursor.size = PyBytes_GET_SIZE(data)
    cursor.position = position
    cdef set sections = set()
    cdef Py_ssize_t index, end
    cdef int64_t length
    for index in range(count):
        length = _take(&cursor)
        if length < 0 or length > cursor.size - cursor.position:
            raise IndexError(cursor.position)
        end = cursor.position + length
        cursor.position += 1
        _take(&cursor)
        if _take(&cursor) != index:
            raise ValueError("offsets that do not count through")
        _pass_bytes(&cursor)
        _pass_bytes(&cursor)
        if cursor.position >= end:
            raise IndexError(cursor.position)
        if cursor.data[cursor.position]:
            section = data[cursor.position : end]
            if section not in sections:
                decode_headers(section)
                sections.add(section)
            cursor.position = end
        else:
            cursor.position += 1
        if cursor.position != end:
            raise IndexError(cursor.position)
    if cursor.position != cursor.size:
        raise IndexError(cursor.position)
