# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What ``plain_loops`` does, compiled: the same results.

Optional: where there was no C compiler at installation, ``loops`` goes on with the plain ones.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streams.core.records import Window, Windowed


cdef extern from *:
    """
    static PyObject* streams_new_pair(PyObject* kind) { return ((PyTypeObject*)kind)->tp_alloc((PyTypeObject*)kind, 2); }
    """
    object streams_new_pair(object kind)


cdef object _Window = Window
cdef object _Windowed = Windowed


cdef inline object _pair(object kind, object first, object second):
    """Return an instance of a subclass of tuple that adds nothing but names."""
    cdef object pair = streams_new_pair(kind)
    Py_INCREF(first)
    PyTuple_SET_ITEM(pair, 0, first)
    Py_INCREF(second)
    PyTuple_SET_ITEM(pair, 1, second)
    return pair


def windowed(key, window):
    """Return ``Windowed(key, window)``."""
    return _pair(_Windowed, key, window)


def session_windowed(key, start_ms, end_ms):
    """Return ``Windowed(key, Window(start_ms, end_ms))``."""
    return _pair(_Windowed, key, _pair(_Window, start_ms, end_ms))


def bytes_in(column):
    """Return how many bytes a column has in all; None has none."""
    cdef Py_ssize_t total = 0
    for item in column:
        if PyBytes_CheckExact(item):
            total += PyBytes_GET_SIZE(item)
        elif item is not None:
            total += len(item)
    return total


def head_places(timestamps, width, index):
    """Return for each record of an input when it is to be taken, lowest head timestamp first, ties by input.

    A record behind a higher one waits for it, so the highest timestamp up to it counts: as one number, that times
    ``width``, the number of inputs, plus ``index``, that of this one.
    """
    cdef list places = []
    highest, place = None, 0
    for time in timestamps:
        if highest is None or time > highest:
            highest = time
            place = time * width + index
        places.append(place)
    return places


def prefixed(bytes prefix, keys):
    """Return each key with the prefix before it."""
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


def rows_by_number(numbers):
    """Return for each number, in the order in which they come first, the indexes at which it stands."""
    cdef dict rows = {}
    cdef Py_ssize_t index = 0
    cdef list found
    for number in numbers:
        if number in rows:
            found = rows[number]
            found.append(index)
        else:
            rows[number] = [index]
        index += 1
    return rows


def timed_keys(keys, slots, int second_bytes):
    """Return each key with the times of its slot behind it, big-endian: 8 bytes, then ``second_bytes``, 4 or 8.

    Raises:
        ValueError: as many keys as slots there are not.
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
    """Return each value with its time before it, 8 bytes, big-endian; None stays None.

    Raises:
        ValueError: as many values as times there are not.
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
