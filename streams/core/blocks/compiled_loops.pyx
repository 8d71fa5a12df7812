# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What ``plain_loops`` does, compiled: the same results.

Optional: where there was no C compiler at installation, ``loops`` goes on with the plain ones.
"""

from array import array as python_array

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_SIZE, PySequence_Fast_ITEMS
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy

from streams.core.blocks.records import Window, Windowed


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


def longest_in(column):
    """Return the size of the longest item of a column in bytes; None has size 0."""
    cdef Py_ssize_t size, longest = 0
    for item in column:
        if PyBytes_CheckExact(item):
            size = PyBytes_GET_SIZE(item)
        else:
            size = 0 if item is None else len(item)
        if size > longest:
            longest = size
    return longest


def is_json(value):
    """Whether a value consists of objects of exactly the types that JSON is read as, and can be written."""
    return _is_json(value, 0)


cdef bint _is_json(object value, int depth):
    cdef PyObject* key
    cdef PyObject* item
    cdef Py_ssize_t at = 0
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool:
        return True
    if kind is float:
        return isfinite(<double>value)
    if depth == 200:  # Plain Python goes deeper.
        return False
    if kind is dict:
        while PyDict_Next(value, &at, &key, &item):
            if type(<object>key) is not str or not _is_json(<object>item, depth + 1):
                return False
        return True
    if kind is list:
        for at in range(PyList_GET_SIZE(value)):
            if not _is_json(<object>PyList_GET_ITEM(value, at), depth + 1):
                return False
        return True
    return False


cdef inline bint _is_digit(char octet) noexcept nogil:
    return c"0" <= octet <= c"9"


cdef bint _has_fine_time(const char* start, const char* end) noexcept nogil:
    cdef const char* at = start
    cdef int digits
    while True:
        at = <const char*>memchr(at, c".", end - at)
        if at == NULL:
            return False
        at += 1
        if at - start > 4 and (at - 4)[0] == c":" and _is_digit((at - 5)[0]) and _is_digit((at - 3)[0]) and _is_digit((at - 2)[0]):
            digits = 0
            while at < end and digits < 7 and _is_digit(at[0]):
                at += 1
                digits += 1
            if digits == 7:
                return True


# Kinds of octets after a quote: digits, what else a number has, and what a decimal of Python may have too.
cdef enum:
    DIGIT = 1
    PUNCTUATION = 2
    PARTED = 4
    ODD = 8
    LETTER = 16

cdef uint8_t[256] _kinds
for _octet in range(256):
    _kinds[_octet] = 0
for _kind, _octets in (
    (DIGIT, b"0123456789"),
    (PUNCTUATION, b" +-.eE"),
    (PARTED, b"_"),
    (ODD, b"\xd9\xdb\xdf\xe0\xe1\xea\xef\xf0\\"),  # First bytes of digits of other scripts in UTF-8, and escapes.
    (LETTER, b"iInNsS"),
):
    for _octet in _octets:
        _kinds[_octet] = _kind


cdef inline bint _is_word(const char* at, const char* word, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        if at[index] != word[index] and (at[index] | 32) != word[index]:
            return False
    return True


cdef bint _has_odd_decimal(const char* at, const char* end) noexcept nogil:
    cdef int seen, kind
    while at < end:
        if at[0] != c'"':
            at += 1
            continue
        at += 1
        seen = kind = 0
        while at < end:
            kind = _kinds[<uint8_t>at[0]]
            if kind == 0 or kind > PARTED:
                break
            seen |= kind
            at += 1
        if at == end:
            return False
        if at[0] == c'"':
            if seen & DIGIT and seen & PARTED:
                return True
            at += 1  # It ends the text, and begins no other.
        elif kind == ODD:
            return True
        elif kind == LETTER:
            if end - at > 4 and (
                _is_word(at, b'inf"', 4) or _is_word(at, b"infi", 4) or _is_word(at, b"nan", 3) or _is_word(at, b"snan", 4)
            ):
                return True
    return False


def is_inexact(data, bint has_times, bint has_decimals):
    """Whether JSON, or a column of JSON, may have a time or decimal that is not read as it is written.

    These are times with more digits than microseconds, and decimals in other characters than digits, such as "1_0".
    """
    if PyBytes_CheckExact(data):
        return _is_inexact(data, has_times, has_decimals)
    for item in data:
        if item is not None and _is_inexact(item if PyBytes_CheckExact(item) else bytes(item), has_times, has_decimals):
            return True
    return False


cdef inline bint _is_inexact(object data, bint has_times, bint has_decimals):
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef const char* end = start + PyBytes_GET_SIZE(data)
    return (has_times and _has_fine_time(start, end)) or (has_decimals and _has_odd_decimal(start, end))


# --- columns of whole numbers ---------------------------------------------------------------


cdef array.array _INT64 = python_array("q")
cdef object _array = python_array


cdef inline array.array _new(Py_ssize_t size):
    return array.clone(_INT64, size, False)


cdef inline int64_t* _of(array.array numbers):
    return <int64_t*>numbers.data.as_longlongs


cpdef array.array int64(object numbers):
    """Return numbers as an array of 64-bit numbers, which may be the same object."""
    if type(numbers) is _array and (<array.array>numbers).ob_descr.typecode == c"q":
        return <array.array>numbers
    cdef array.array result
    cdef int64_t* to
    cdef int64_t first, step
    cdef Py_ssize_t index
    if type(numbers) is list or type(numbers) is tuple:
        result = _new(len(numbers))
        to = _of(result)
        for index in range(len(result)):
            to[index] = <object>PySequence_Fast_ITEMS(numbers)[index]
        return result
    if type(numbers) is range:
        first, step = numbers.start, numbers.step
        result = _new(len(numbers))
        to = _of(result)
        for index in range(len(result)):
            to[index] = first + index * step
        return result
    return _array("q", numbers)


def running_max(numbers):
    """Return for each number the highest one up to it, as an array of 64-bit numbers."""
    cdef array.array given = int64(numbers), result = _new(len(given))
    cdef int64_t* source = _of(given)
    cdef int64_t* to = _of(result)
    cdef int64_t highest = 0
    cdef Py_ssize_t index
    for index in range(len(given)):
        if not index or source[index] > highest:
            highest = source[index]
        to[index] = highest
    return result


def last_by_number(numbers, values):
    """Return the last of the values that stand beside each number."""
    cdef array.array given = int64(numbers), beside = int64(values)
    cdef int64_t* source = _of(given)
    cdef int64_t* value = _of(beside)
    cdef Py_ssize_t index, size = len(given)
    if len(beside) != size:
        raise ValueError("columns of different lengths")
    cdef dict last = {}
    for index in range(size):
        # Only the last row of a sequence of the same number.
        if index + 1 == size or source[index + 1] != source[index]:
            last[source[index]] = value[index]
    return last


def runs_of(numbers):
    """Return each sequence of the same number: the number, and how often it comes."""
    cdef array.array given = int64(numbers)
    cdef int64_t* source = _of(given)
    cdef Py_ssize_t index, start = 0, size = len(given)
    cdef list runs = []
    for index in range(size):
        if index + 1 == size or source[index + 1] != source[index]:
            runs.append((source[index], index + 1 - start))
            start = index + 1
    return runs


# --- splitting and merging of columns -------------------------------------------------------


def split_by_number(numbers, columns):
    """Return for each number, in the order in which they come first, the rows of all columns at which it stands.

    A column that is None stays None.  Whole numbers in arrays and ranges become arrays, other columns become lists; if
    there is only one number, the columns are returned as they are.
    """
    cdef array.array given = int64(numbers)
    cdef int64_t* source = _of(given)
    cdef Py_ssize_t index, size = len(given), distinct = 0
    cdef dict slots = {}
    cdef int64_t before = 0
    cdef int slot = -1
    if not size:
        return {}
    for index in range(size):
        if source[index] != source[0]:
            break
    else:
        return {source[0]: tuple(columns)}
    # The first numbers are usually small, so that their slots are found without a dict.
    cdef int[256] small
    for index in range(256):
        small[index] = -1
    cdef int* slot_of = <int*>PyMem_Malloc(size * sizeof(int))
    cdef array.array sizes = _new(0)
    if slot_of == NULL:
        raise MemoryError()
    try:
        for index in range(size):
            if slot < 0 or source[index] != before:
                before = source[index]
                slot = small[before] if 0 <= before < 256 else -1
                if slot < 0:
                    if before in slots:
                        slot = slots[before]
                    else:
                        slot = slots[before] = distinct
                        distinct += 1
                        sizes.append(0)
                    if 0 <= before < 256:
                        small[before] = slot
            slot_of[index] = slot
            _of(sizes)[slot] += 1
        parts = [[] for _ in range(distinct)]
        for column in columns:
            if column is None:
                for part in parts:
                    part.append(None)
            elif len(column) != size:
                raise ValueError("columns of different lengths")
            elif type(column) is _array or type(column) is range:
                _split_numbers(int64(column), slot_of, size, _of(sizes), parts)
            else:
                _split_objects(column, slot_of, size, _of(sizes), parts)
    finally:
        PyMem_Free(slot_of)
    return {number: tuple(parts[slot]) for number, slot in slots.items()}


cdef int _split_numbers(array.array column, int* slot_of, Py_ssize_t size, int64_t* sizes, list parts) except -1:
    cdef Py_ssize_t index, count = PyList_GET_SIZE(parts)
    cdef int64_t** to = <int64_t**>PyMem_Malloc(count * sizeof(int64_t*))
    cdef int64_t* source = _of(column)
    cdef array.array part
    if to == NULL:
        raise MemoryError()
    try:
        for index in range(count):
            part = _new(sizes[index])
            to[index] = _of(part)
            (<list>parts[index]).append(part)
        for index in range(size):
            to[slot_of[index]][0] = source[index]
            to[slot_of[index]] += 1
    finally:
        PyMem_Free(to)
    return 0


cdef int _split_objects(object column, int* slot_of, Py_ssize_t size, int64_t* sizes, list parts) except -1:
    cdef object items = PySequence_Fast(column, b"a column is no sequence")
    cdef PyObject** source = PySequence_Fast_ITEMS(items)
    cdef Py_ssize_t index, count = PyList_GET_SIZE(parts)
    cdef Py_ssize_t* filled = <Py_ssize_t*>PyMem_Malloc(count * sizeof(Py_ssize_t))
    cdef PyObject** to = <PyObject**>PyMem_Malloc(count * sizeof(PyObject*))
    cdef object item
    cdef int slot
    if filled == NULL or to == NULL:
        PyMem_Free(filled)
        PyMem_Free(to)
        raise MemoryError()
    try:
        for index in range(count):
            item = PyList_New(sizes[index])
            (<list>parts[index]).append(item)
            to[index] = <PyObject*>item
            filled[index] = 0
        for index in range(size):
            item = <object>source[index]
            slot = slot_of[index]
            Py_INCREF(item)
            PyList_SET_ITEM(<object>to[slot], filled[slot], item)
            filled[slot] += 1
    finally:
        PyMem_Free(filled)
        PyMem_Free(to)
    return 0


cdef struct _Head:
    # The next number of an input, and the rest of its numbers.
    int64_t* next
    int64_t* end
    int64_t input


cdef inline bint _is_before(_Head* one, _Head* other) noexcept nogil:
    return one.next[0] < other.next[0] or (one.next[0] == other.next[0] and one.input < other.input)


cdef inline void _sift(_Head* heads, Py_ssize_t count, Py_ssize_t at) noexcept nogil:
    """Move the head at an index down, until none below it is before it."""
    cdef _Head head = heads[at]
    cdef Py_ssize_t below
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and _is_before(&heads[below + 1], &heads[below]):
            below += 1
        if not _is_before(&heads[below], &head):
            break
        heads[at] = heads[below]
        at = below
    heads[at] = head


def merge_order(inputs):
    """Return which input is next, again and again: the one with the lowest number, of equal ones the first input.

    ``inputs`` are columns of ascending numbers.  The result has the index of an input for each of their rows.
    """
    cdef list columns = [int64(each) for each in inputs]
    cdef Py_ssize_t index, below, total = 0, count = 0
    cdef array.array column, result
    cdef _Head* heads = <_Head*>PyMem_Malloc((len(columns) or 1) * sizeof(_Head))
    cdef _Head* second
    cdef int64_t* to
    if heads == NULL:
        raise MemoryError()
    try:
        for index in range(len(columns)):
            column = columns[index]
            if len(column):
                heads[count] = _Head(_of(column), _of(column) + len(column), index)
                total += len(column)
                count += 1
        result = _new(total)
        to = _of(result)
        for index in range(count // 2 - 1, -1, -1):
            _sift(heads, count, index)
        while count > 1:
            second = &heads[2] if count > 2 and _is_before(&heads[2], &heads[1]) else &heads[1]
            while True:
                to[0] = heads[0].input
                to += 1
                heads[0].next += 1
                if heads[0].next == heads[0].end:
                    count -= 1
                    heads[0] = heads[count]
                    break
                if not _is_before(&heads[0], second):
                    break
            _sift(heads, count, 0)
        if count:
            while heads[0].next != heads[0].end:
                to[0] = heads[0].input
                to += 1
                heads[0].next += 1
    finally:
        PyMem_Free(heads)
    return result


def look_up(order, numbers):
    """Return the number at each index of ``order``, as an array of 64-bit numbers."""
    cdef array.array indexes = int64(order), given = int64(numbers), result = _new(len(indexes))
    cdef int64_t* source = _of(given)
    cdef int64_t* to = _of(result)
    cdef int64_t* at = _of(indexes)
    cdef Py_ssize_t index, count = len(given)
    for index in range(len(indexes)):
        if not 0 <= at[index] < count:
            raise IndexError(at[index])
        to[index] = source[at[index]]
    return result


def take_rows(list column, rows):
    """Return the items of a column at these rows, which have None in their place then."""
    cdef array.array indexes = int64(rows)
    cdef Py_ssize_t index, at, count = PyList_GET_SIZE(column), size = len(indexes)
    cdef int64_t* source = _of(indexes)
    for index in range(size):
        if not 0 <= source[index] < count:
            raise IndexError(source[index])
    cdef PyObject** items = PySequence_Fast_ITEMS(column)
    cdef list result = PyList_New(size)
    cdef PyObject** to = PySequence_Fast_ITEMS(result)
    # The references move: counting them would cost more than all the rest, as the items are not in the cache.
    for index in range(size):
        at = source[index]
        Py_INCREF(None)
        to[index] = items[at]
        items[at] = <PyObject*>None
    return result


def interleaved(order, columns, starts):
    """Return the rows of several columns as one, in the order of ``merge_order``.

    ``starts`` are the indexes of the first rows.  Arrays and ranges of whole numbers become an array, others a list.
    """
    cdef array.array indexes = int64(order)
    cdef Py_ssize_t index, count = len(columns), size = len(indexes)
    cdef int64_t* at = _of(indexes)
    cdef int64_t* room = <int64_t*>PyMem_Malloc((count or 1) * sizeof(int64_t))
    cdef void** source = <void**>PyMem_Malloc((count or 1) * sizeof(void*))
    cdef bint is_numbers = all([type(each) is _array or type(each) is range for each in columns])
    cdef list held = []
    cdef array.array numbers
    cdef int64_t* to
    cdef list result
    cdef object item
    cdef Py_ssize_t start
    if room == NULL or source == NULL:
        PyMem_Free(room)
        PyMem_Free(source)
        raise MemoryError()
    try:
        for index in range(count):
            start = starts[index]
            column = columns[index]
            if is_numbers and type(column) is range:
                column, start = column[start:], 0
            item = int64(column) if is_numbers else PySequence_Fast(column, b"a column is no sequence")
            held.append(item)
            room[index] = len(item) - start
            if is_numbers:
                source[index] = <void*>(_of(<array.array>item) + start)
            else:
                source[index] = <void*>(PySequence_Fast_ITEMS(item) + start)
        for index in range(size):
            if not 0 <= at[index] < count or not room[at[index]]:
                raise IndexError(at[index])
            room[at[index]] -= 1
        if is_numbers:
            numbers = _new(size)
            to = _of(numbers)
            for index in range(size):
                to[index] = (<int64_t*>source[at[index]])[0]
                source[at[index]] = <void*>((<int64_t*>source[at[index]]) + 1)
            return numbers
        result = PyList_New(size)
        for index in range(size):
            item = <object>((<PyObject**>source[at[index]])[0])
            source[at[index]] = <void*>((<PyObject**>source[at[index]]) + 1)
            Py_INCREF(item)
            PyList_SET_ITEM(result, index, item)
        return result
    finally:
        PyMem_Free(room)
        PyMem_Free(source)


# --- places -------------------------------------------------------------------------------


cdef class PlacedRows:
    """An iterator over the timestamps of a run that notes the place of each record written in the meantime.

    When the next row is taken, all outputs of the row before it have been appended to the output columns.  ``outputs``
    has a list of each column that grows with the outputs, and the array of their places.
    """

    cdef public int64_t place
    cdef object _outputs

    def __init__(self, place, outputs):
        self.place = place
        self._outputs = outputs

    def over(self, timestamps, places):
        """Return an iterator over the timestamps of a run, whose rows have these places."""
        if len(timestamps) != len(places):
            raise ValueError("columns of different lengths")
        return _Over(self, timestamps, int64(places))

    cpdef note(self):
        """Note the current place for all outputs that have none yet."""
        cdef list column
        cdef array.array places
        cdef Py_ssize_t index, size
        for column, places in self._outputs:
            index, size = len(places), PyList_GET_SIZE(column)
            if index < size:
                array.resize_smart(places, size)
                while index < size:
                    _of(places)[index] = self.place
                    index += 1


cdef class _Over:
    cdef PlacedRows _rows
    cdef object _timestamps
    cdef array.array _places
    cdef Py_ssize_t _index

    def __init__(self, rows, timestamps, places):
        self._rows = rows
        self._timestamps = PySequence_Fast(timestamps, b"timestamps are no sequence")
        self._places = places
        self._index = 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t index = self._index
        if index >= len(self._places) or index >= PySequence_Fast_GET_SIZE(self._timestamps):
            raise StopIteration
        cdef int64_t place = _of(self._places)[index]
        if place > self._rows.place:
            self._rows.note()
            self._rows.place = place
        self._index = index + 1
        return <object>PySequence_Fast_ITEMS(self._timestamps)[index]


cdef inline int64_t _larger(int64_t one, int64_t other) noexcept nogil:
    return one if one > other else other


def encoded_places(places, timestamps):
    """Return the differences of places from what is expected as zigzag varints; none if all are as expected.

    The higher one of the timestamp and the place before is expected.
    """
    cdef array.array given = int64(places), times = int64(timestamps)
    cdef Py_ssize_t index, size = len(given)
    cdef int64_t* place = _of(given)
    cdef int64_t* time = _of(times)
    cdef int64_t before = -1, difference
    cdef uint64_t rest
    cdef bint has_differences = False
    if len(times) != size:
        raise ValueError("columns of different lengths")
    cdef bytes room = PyBytes_FromStringAndSize(NULL, 10 * size)
    cdef uint8_t* first = <uint8_t*>PyBytes_AS_STRING(room)
    cdef uint8_t* to = first
    for index in range(size):
        difference = place[index] - _larger(before, time[index])
        before = place[index]
        has_differences |= difference != 0
        rest = (<uint64_t>difference << 1) ^ <uint64_t>(difference >> 63)
        while rest > 127:
            to[0] = <uint8_t>(rest & 127) | 128
            to += 1
            rest >>= 7
        to[0] = <uint8_t>rest
        to += 1
    return room[: to - first] if has_differences else b""


def decoded_places(bytes data, Py_ssize_t position, timestamps, bint has_differences):
    """Return the places of rows with these timestamps, and the position after their differences in ``data``.

    Raises:
        IndexError: the bytes end within the differences.
        OverflowError: a place has more than 64 bits.
    """
    cdef array.array times = int64(timestamps), result = _new(len(times))
    cdef int64_t* time = _of(times)
    cdef int64_t* to = _of(result)
    cdef uint8_t* source = <uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t index, size = PyBytes_GET_SIZE(data)
    cdef int64_t place = -1, difference
    cdef uint64_t rest
    cdef int shift
    for index in range(len(times)):
        place = _larger(place, time[index])
        if has_differences:
            rest, shift = 0, 0
            while True:
                if position >= size:
                    raise IndexError(position)
                if shift > 63 or (shift == 63 and source[position] > 1):
                    raise OverflowError("a place has more than 64 bits")
                rest |= <uint64_t>(source[position] & 127) << shift
                shift += 7
                position += 1
                if source[position - 1] < 128:
                    break
            difference = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
            if (difference > 0 and place > 0x7FFFFFFFFFFFFFFF - difference) or (
                difference < 0 and place < -0x7FFFFFFFFFFFFFFF - 1 - difference
            ):
                raise OverflowError("a place has more than 64 bits")
            place += difference
        to[index] = place
    return result, position
