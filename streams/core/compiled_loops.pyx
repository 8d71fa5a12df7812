# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What ``plain_loops`` does, compiled: the same results.

Optional: where there was no C compiler at installation, ``loops`` goes on with the plain ones.
"""

from cpython.list cimport PyList_GET_SIZE
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

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


cdef class PlacedRows:
    """An iterator over the timestamps of a run that notes the place of each record written in the meantime.

    When the next row is taken, all outputs of the row before it have been appended to the output columns.  ``outputs``
    has a list of each column that grows with the outputs, and the list of their places.
    """

    cdef public object place
    cdef object _outputs

    def __init__(self, place, outputs):
        self.place = place
        self._outputs = outputs

    def over(self, timestamps, places):
        """Return an iterator over the timestamps of a run, whose rows have these places."""
        return _Over(self, timestamps, places)

    cpdef note(self):
        """Note the current place for all outputs that have none yet."""
        cdef list column, places
        cdef Py_ssize_t count
        for column, places in self._outputs:
            count = PyList_GET_SIZE(column) - PyList_GET_SIZE(places)
            if count == 1:
                places.append(self.place)
            elif count:
                places.extend([self.place] * count)


cdef class _Over:
    cdef PlacedRows _rows
    cdef object _timestamps, _places

    def __init__(self, rows, timestamps, places):
        self._rows = rows
        self._timestamps = iter(timestamps)
        self._places = iter(places)

    def __iter__(self):
        return self

    def __next__(self):
        place = next(self._places)
        timestamp = next(self._timestamps)
        if place > self._rows.place:
            self._rows.note()
            self._rows.place = place
        return timestamp


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
