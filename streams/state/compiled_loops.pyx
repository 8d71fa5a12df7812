# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The functions of ``plain_loops``, compiled: equal results and errors.

Optional: if there was no C compiler at installation, ``loops`` uses the plain functions.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


def prefixed(bytes prefix, keys):
    """Return each key with the prefix prepended."""
    cdef list made = []
    cdef Py_ssize_t before = PyBytes_GET_SIZE(prefix), size
    cdef const char* lead = PyBytes_AS_STRING(prefix)
    cdef bytes key, whole
    cdef char* to
    for item in keys:
        key = _bytes(item)
        size = PyBytes_GET_SIZE(key)
        whole = PyBytes_FromStringAndSize(NULL, before + size)
        to = PyBytes_AS_STRING(whole)
        memcpy(to, lead, before)
        memcpy(to + before, PyBytes_AS_STRING(key), size)
        made.append(whole)
    return made


def timed_keys(keys, slots, int second_bytes):
    """Return each key followed by the big-endian times of its slot: 8 bytes, then ``second_bytes`` (4 or 8).

    Raises:
        ValueError: the lengths differ.
    """
    cdef list of_keys = list(keys)
    cdef list of_slots = list(slots)
    cdef Py_ssize_t count = len(of_keys), index, size
    if len(of_slots) != count:
        raise ValueError("columns of different lengths")
    cdef list made = [None] * count
    cdef bytes key, whole
    cdef tuple slot
    cdef uint8_t* to
    for index in range(count):
        item, slot = of_keys[index], of_slots[index]
        key = _bytes(item)
        size = PyBytes_GET_SIZE(key)
        whole = PyBytes_FromStringAndSize(NULL, size + 8 + second_bytes)
        to = <uint8_t*>PyBytes_AS_STRING(whole)
        memcpy(to, PyBytes_AS_STRING(key), size)
        _big_endian(to + size, <uint64_t><int64_t>slot[1], 8)
        _big_endian(to + size + 8, 0 if len(slot) == 2 else <uint64_t><int64_t>slot[2], second_bytes)
        made[index] = whole
    return made


def timed_values(values, times):
    """Return each value prefixed with its time as 8 big-endian bytes; None remains None.

    Raises:
        ValueError: the lengths differ.
    """
    cdef list of_values = list(values)
    cdef list of_times = list(times)
    cdef Py_ssize_t count = len(of_values), index, size
    if len(of_times) != count:
        raise ValueError("columns of different lengths")
    cdef list made = [None] * count
    cdef bytes value, whole
    cdef uint8_t* to
    for index in range(count):
        item = of_values[index]
        if item is None:
            continue
        value = _bytes(item)
        size = PyBytes_GET_SIZE(value)
        whole = PyBytes_FromStringAndSize(NULL, 8 + size)
        to = <uint8_t*>PyBytes_AS_STRING(whole)
        _big_endian(to, <uint64_t><int64_t>of_times[index], 8)
        memcpy(to + 8, PyBytes_AS_STRING(value), size)
        made[index] = whole
    return made


cdef inline bytes _bytes(object item):
    """Return any buffer as bytes."""
    return item if PyBytes_CheckExact(item) else bytes(item)


cdef inline void _big_endian(uint8_t* to, uint64_t number, int size) noexcept nogil:
    cdef int place
    for place in range(size - 1, -1, -1):
        to[place] = <uint8_t>number
        number >>= 8
