# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers of JSON records as columns, and register programs that run over them.

A register holds 64 bits: a whole number (a bool is 0 or 1) or a float.  A program computes what Python computes, to the
last bit, or stops before the row for which it cannot: a whole number of more than 64 bits, a zero divisor, a whole
number beyond 2**53 that meets a float in a comparison or a whole number in a division.
"""

from array import array as python_array

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport fabs, isfinite
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from streams.core.blocks.loops import int64


cdef extern from *:
    """
    #include <stdint.h>
    typedef union { double d; int64_t i; } streams_register;
    /* All whole numbers up to this one are floats. */
    #define STREAMS_EXACT ((int64_t)1 << 53)
    static inline int streams_add(int64_t a, int64_t b, int64_t* r) {
        *r = (int64_t)((uint64_t)a + (uint64_t)b);
        return ((a ^ *r) & (b ^ *r)) < 0;
    }
    static inline int streams_subtract(int64_t a, int64_t b, int64_t* r) {
        *r = (int64_t)((uint64_t)a - (uint64_t)b);
        return ((a ^ b) & (a ^ *r)) < 0;
    }
    #ifdef _MSC_VER
    #include <intrin.h>
    static inline int streams_multiply(int64_t a, int64_t b, int64_t* r) {
        int64_t high;
        *r = _mul128(a, b, &high);
        return high != (*r >> 63);
    }
    #else
    static inline int streams_multiply(int64_t a, int64_t b, int64_t* r) { return __builtin_mul_overflow(a, b, r); }
    #endif
    """
    ctypedef union Register "streams_register":
        double d
        int64_t i
    int64_t EXACT "STREAMS_EXACT"
    int streams_add(int64_t a, int64_t b, int64_t* r) noexcept nogil
    int streams_subtract(int64_t a, int64_t b, int64_t* r) noexcept nogil
    int streams_multiply(int64_t a, int64_t b, int64_t* r) noexcept nogil


cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1.0


cdef enum:
    INT = 0
    FLOAT = 1
    BOOL = 2
    STR = 3

#: The number of each kind of a column.
KINDS = {int: INT, float: FLOAT, bool: BOOL, str: STR}

cdef inline array.array _new(Py_ssize_t size):
    return array.clone(_INT64, size, False)


cdef array.array _INT64 = python_array("q")


cdef inline int64_t* _of(array.array numbers):
    return <int64_t*>numbers.data.as_longlongs


# --- JSON ---------------------------------------------------------------------------------


cdef double[23] _powers
for _power in range(23):
    _powers[_power] = 10.0 ** _power


cdef class JsonColumns:
    """Slices numbers out of JSON objects that all have the same fields in the same order, with few spaces.

    Each field of each record is checked as the decoder of its class would check it.  Of what JSON allows, less is
    accepted: there is at most one space after a colon or comma, whole numbers have up to 18 digits, and nothing is null.
    """

    cdef tuple _names, _kinds, _columns
    cdef list _heads
    cdef list _order

    def __init__(self, names, kinds, columns):
        """``columns`` has the number of the column of each field, -1 for those that nobody uses."""
        self._names, self._kinds, self._columns = tuple(names), tuple(kinds), tuple(columns)
        self._set_order(range(len(self._names)))

    def _set_order(self, order):
        self._order = list(order)
        self._heads = [('"' + self._names[at] + '":').encode() for at in self._order]

    def set_names(self, names):
        """Take the fields in the order of ``names``; return whether these are the fields."""
        if sorted(names) != sorted(self._names):
            return False
        self._set_order(map(self._names.index, names))
        return True

    def slice(self, list rows):
        """Return the columns, or None if a record is not accepted."""
        cdef Py_ssize_t size = PyList_GET_SIZE(rows), index, at, count = len(self._names)
        cdef const char* head[64]
        cdef Py_ssize_t length[64]
        cdef int kind[64]
        cdef int64_t* to[64]
        cdef Register parsed
        cdef const char* p
        cdef const char* end
        cdef object row
        if not 0 < count <= 64:
            return None
        columns = [_new(size) for number in self._columns if number >= 0]
        for at in range(count):
            text = self._heads[at]
            head[at] = PyBytes_AS_STRING(text)
            length[at] = PyBytes_GET_SIZE(text)
            kind[at] = self._kinds[self._order[at]]
            number = self._columns[self._order[at]]
            to[at] = NULL if number < 0 else _of(columns[number])
        for index in range(size):
            row = <object>PyList_GET_ITEM(rows, index)
            if not PyBytes_CheckExact(row):
                return None
            p = PyBytes_AS_STRING(row)
            end = p + PyBytes_GET_SIZE(row) - 1
            if end - p < 1 or p[0] != c"{" or end[0] != c"}":
                return None
            for at in range(count):
                # The brace or a comma before the field.
                p += 1
                p += p[0] == c" "
                if end - p <= length[at] or memcmp(p, head[at], length[at]) != 0:
                    return None
                p += length[at]
                p = _parsed(p + (p[0] == c" "), end, kind[at], &parsed)
                if p == NULL or (p != end if at == count - 1 else p[0] != c","):
                    return None
                if to[at] != NULL:
                    to[at][index] = parsed.i
        return columns


cdef inline bint _is_digit(char octet) noexcept nogil:
    return c"0" <= octet <= c"9"


cdef const char* _after_escape(const char* p) noexcept nogil:
    """Return where an escape in a text ends; NULL if it is none, or half of a character."""
    cdef int at
    cdef char octet
    if p[1] != c"u":
        for octet in b'"\\/bfnrt':
            if p[1] == octet:
                return p + 2
        return NULL
    for at in range(2, 6):
        if not (_is_digit(p[at]) or c"a" <= p[at] <= c"f" or c"A" <= p[at] <= c"F"):
            return NULL
    return NULL if (p[2] == c"d" or p[2] == c"D") and p[3] >= c"8" else p + 6


cdef const char* _parsed(const char* p, const char* end, int kind, Register* to) except? NULL:
    """Read a value; return where it ends, or NULL."""
    cdef const char* start = p
    cdef const char* digits
    cdef char* stop
    cdef int64_t number = 0
    cdef int power = 0, exponent = 0
    cdef bint is_negative = False, is_ascii = True
    if kind == STR:
        if p[0] != c'"':
            return NULL
        p += 1
        # The bytes end with a zero, so that nothing is read after them.
        while <uint8_t>p[0] >= 0x20 and p[0] != c'"':
            is_ascii &= <uint8_t>p[0] < 0x80
            if p[0] == c"\\":
                p = _after_escape(p)
                if p == NULL:
                    return NULL
            else:
                p += 1
        if p[0] != c'"' or p >= end:
            return NULL
        if not is_ascii:
            try:
                PyUnicode_DecodeUTF8(start + 1, p - start - 1, NULL)
            except UnicodeDecodeError:
                return NULL
        return p + 1
    if kind == BOOL:
        if end - p >= 4 and memcmp(p, b"true", 4) == 0:
            to.i = 1
            return p + 4
        if end - p >= 5 and memcmp(p, b"false", 5) == 0:
            to.i = 0
            return p + 5
        return NULL
    if p[0] == c"-":
        is_negative = True
        p += 1
    digits = p
    while _is_digit(p[0]):
        if p - digits < 18:
            number = number * 10 + (p[0] - 48)
        p += 1
    if p == digits or (digits[0] == c"0" and p - digits > 1):
        return NULL
    if p[0] == c"," or p[0] == c"}":
        if p - digits > 18 or (is_negative and number == 0):
            return NULL
        if is_negative:
            number = -number
        if kind == FLOAT:
            to.d = <double>number
        else:
            to.i = number
        return p
    if kind == INT:
        return NULL
    power = <int>(p - digits) if p - digits < 1000 else 1000
    if p[0] == c".":
        p += 1
        digits = p
        while _is_digit(p[0]):
            if power < 18:
                number = number * 10 + (p[0] - 48)
            power += 1
            p += 1
        if p == digits:
            return NULL
        exponent = <int>(p - digits) if p - digits < 1000 else 1000
    if p[0] == c"e" or p[0] == c"E":
        p += 1
        if p[0] == c"+" or p[0] == c"-":
            p += 1
        digits = p
        while _is_digit(p[0]):
            p += 1
        if p == digits:
            return NULL
        power = 1000
    if power <= 15 and exponent <= 22:
        # Both are exact, and so is the rounding of their quotient.
        to.d = <double>number / _powers[exponent]
        if is_negative:
            to.d = -to.d
        return p
    to.d = PyOS_string_to_double(start, &stop, NULL)
    return p if stop == p and isfinite(to.d) else NULL


def key_codes(list keys, dict codes, new_code):
    """Return a number for each key, from ``codes``; ``new_code(key)`` adds a key and returns its number."""
    cdef Py_ssize_t index, size = PyList_GET_SIZE(keys)
    cdef array.array result = _new(size)
    cdef int64_t* to = _of(result)
    cdef PyObject* code
    for index in range(size):
        code = PyDict_GetItem(codes, <object>PyList_GET_ITEM(keys, index))
        to[index] = new_code(<object>PyList_GET_ITEM(keys, index)) if code == NULL else <object>code
    return result


# --- programs -----------------------------------------------------------------------------

cdef enum:
    ADDI, SUBI, MULI, FLOORI, MODI, ADDF, SUBF, MULF, DIVF, DIVI, ITOF, EXACTF, EQI, NEI, LTI, LEI, GTI, GEI, EQF, NEF
    LTF, LEF, GTF, GEF, JZ, JMP, NEGI, NEGF, ABSI, ABSF, ANDI, ORI, XORI, MOVE, TRUTHI, TRUTHF, SKIP, END

#: The number of each operation.
OPERATIONS = {
    name: number
    for number, name in enumerate(
        "ADDI SUBI MULI FLOORI MODI ADDF SUBF MULF DIVF DIVI ITOF EXACTF EQI NEI LTI LEI GTI GEI EQF NEF LTF LEF GTF GEF "
        "JZ JMP NEGI NEGF ABSI ABSF ANDI ORI XORI MOVE TRUTHI TRUTHF SKIP END".split()
    )
}


cdef int _execute(const int64_t* code, Py_ssize_t at, Register* r) noexcept nogil:
    """Return 0 at END, 1 at SKIP, and 2 if Python has to compute the row."""
    cdef int64_t a, b, c, quotient, rest
    while True:
        a, b, c = code[at + 1], code[at + 2], code[at + 3]
        op = code[at]
        at += 4
        if op == ADDI:
            if streams_add(r[b].i, r[c].i, &r[a].i):
                return 2
        elif op == SUBI:
            if streams_subtract(r[b].i, r[c].i, &r[a].i):
                return 2
        elif op == MULI:
            if streams_multiply(r[b].i, r[c].i, &r[a].i):
                return 2
        elif op == FLOORI or op == MODI:
            if r[c].i == 0 or r[c].i == -1:
                return 2
            quotient = r[b].i // r[c].i
            rest = r[b].i - quotient * r[c].i
            if rest != 0 and (rest < 0) != (r[c].i < 0):
                quotient -= 1
                rest += r[c].i
            r[a].i = quotient if op == FLOORI else rest
        elif op == ADDF:
            r[a].d = r[b].d + r[c].d
        elif op == SUBF:
            r[a].d = r[b].d - r[c].d
        elif op == MULF:
            r[a].d = r[b].d * r[c].d
        elif op == DIVF:
            if r[c].d == 0.0:
                return 2
            r[a].d = r[b].d / r[c].d
        elif op == DIVI:
            if r[c].i == 0 or not (-EXACT <= r[b].i <= EXACT and -EXACT <= r[c].i <= EXACT):
                return 2
            r[a].d = <double>r[b].i / <double>r[c].i
        elif op == ITOF:
            r[a].d = <double>r[b].i
        elif op == EXACTF:
            if not -EXACT <= r[b].i <= EXACT:
                return 2
            r[a].d = <double>r[b].i
        elif op == EQI:
            r[a].i = r[b].i == r[c].i
        elif op == NEI:
            r[a].i = r[b].i != r[c].i
        elif op == LTI:
            r[a].i = r[b].i < r[c].i
        elif op == LEI:
            r[a].i = r[b].i <= r[c].i
        elif op == GTI:
            r[a].i = r[b].i > r[c].i
        elif op == GEI:
            r[a].i = r[b].i >= r[c].i
        elif op == EQF:
            r[a].i = r[b].d == r[c].d
        elif op == NEF:
            r[a].i = r[b].d != r[c].d
        elif op == LTF:
            r[a].i = r[b].d < r[c].d
        elif op == LEF:
            r[a].i = r[b].d <= r[c].d
        elif op == GTF:
            r[a].i = r[b].d > r[c].d
        elif op == GEF:
            r[a].i = r[b].d >= r[c].d
        elif op == JZ:
            if r[b].i == 0:
                at = a
        elif op == JMP:
            at = a
        elif op == NEGI:
            if streams_subtract(0, r[b].i, &r[a].i):
                return 2
        elif op == NEGF:
            r[a].d = -r[b].d
        elif op == ABSI:
            r[a].i = r[b].i
            if r[b].i < 0 and streams_subtract(0, r[b].i, &r[a].i):
                return 2
        elif op == ABSF:
            r[a].d = fabs(r[b].d)
        elif op == ANDI:
            r[a].i = r[b].i & r[c].i
        elif op == ORI:
            r[a].i = r[b].i | r[c].i
        elif op == XORI:
            r[a].i = r[b].i ^ r[c].i
        elif op == MOVE:
            r[a] = r[b]
        elif op == TRUTHI:
            r[a].i = r[b].i != 0
        elif op == TRUTHF:
            r[a].i = r[b].d != 0.0
        elif op == SKIP:
            return 1
        else:
            return 0


cdef struct _Slot:
    # Of a key and a window.
    int64_t key
    int64_t start
    int64_t time
    # Number of the update that changed it last; 0 if none did.
    int64_t changed
    # Whether the store has nothing for it, so that the first update decides its time.
    bint is_new


cdef class ColumnFold:
    """Folds rows into states by key and window, of which the store has the first.

    The program has three parts: that of each row, which may skip it, that of each window, and that of the first value of
    a reduction (-1 if it is none).  Registers are constants, columns, state, new state, and the others.
    """

    cdef array.array _code, _constants, _kinds
    cdef Py_ssize_t _update_at, _first_at, _column_at, _state_at, _new_at, _width, _registers_size
    cdef int64_t _size_ms, _advance_ms, _grace_ms
    cdef Register* _registers
    cdef _Slot* _slots
    cdef Register* _states
    cdef Py_ssize_t _slots_size
    cdef int64_t* _table
    cdef Py_ssize_t _table_size
    cdef Py_ssize_t _count
    cdef int64_t _updates_count
    #: Stream time after the last run.
    cdef readonly int64_t stream_time_ms
    #: Rows that were late, each with the milliseconds for each window that was closed.
    cdef readonly list late

    def __cinit__(self, code, constants, kinds, places, registers_size, windows):
        self._code, self._constants = int64(code), int64(constants)
        self._kinds = int64([KINDS[kind] for kind in kinds])
        self._update_at, self._first_at, self._column_at, self._state_at, self._new_at = places
        self._size_ms, self._advance_ms, self._grace_ms = windows
        self._width = len(self._kinds)
        self._registers_size = registers_size
        self._registers = <Register*>PyMem_Malloc((registers_size + 1) * sizeof(Register))
        if self._registers == NULL:
            raise MemoryError()
        if len(self._constants):
            memcpy(self._registers, _of(self._constants), len(self._constants) * sizeof(Register))
        self._grow(64)

    def __dealloc__(self):
        PyMem_Free(self._registers)
        PyMem_Free(self._slots)
        PyMem_Free(self._states)
        PyMem_Free(self._table)

    cdef int _grow(self, Py_ssize_t size) except -1:
        """Make room for slots; the table has at least twice as many places."""
        cdef _Slot* slots = <_Slot*>PyMem_Realloc(self._slots, size * sizeof(_Slot))
        if slots == NULL:
            raise MemoryError()
        self._slots = slots
        cdef Register* states = <Register*>PyMem_Realloc(self._states, (size * self._width + 1) * sizeof(Register))
        if states == NULL:
            raise MemoryError()
        self._states = states
        self._slots_size = size
        cdef int64_t* table = <int64_t*>PyMem_Realloc(self._table, 2 * size * sizeof(int64_t))
        if table == NULL:
            raise MemoryError()
        self._table = table
        self._table_size = 2 * size
        memset(table, 255, 2 * size * sizeof(int64_t))
        cdef Py_ssize_t slot
        for slot in range(self._count):
            self._table[self._place(self._slots[slot].key, self._slots[slot].start)] = slot
        return 0

    cdef inline Py_ssize_t _place(self, int64_t key, int64_t start) noexcept nogil:
        """Return the place of a slot in the table, or the empty one where it would be."""
        cdef uint64_t mask = self._table_size - 1
        cdef uint64_t place = (<uint64_t>key * <uint64_t>0x9E3779B97F4A7C15) ^ (<uint64_t>start * <uint64_t>0xC2B2AE3D27D4EB4F)
        place = (place ^ (place >> 29)) & mask
        while self._table[place] >= 0:
            if self._slots[self._table[place]].key == key and self._slots[self._table[place]].start == start:
                break
            place = (place + 1) & mask
        return place

    def forget(self):
        """Forget all states."""
        self._count = 0
        self._updates_count = 0
        memset(self._table, 255, self._table_size * sizeof(int64_t))

    cdef Py_ssize_t _slot(self, int64_t key, int64_t start, fetch) except -2:
        """Return the slot of a key and window; -1 if the program cannot take what the store has for it."""
        cdef Py_ssize_t place = self._place(key, start), slot
        if self._table[place] >= 0:
            return self._table[place]
        fetched = fetch(key, start)
        if fetched is None:
            return -1
        if 2 * (self._count + 1) > self._slots_size:
            self._grow(2 * self._slots_size)
            place = self._place(key, start)
        slot = self._count
        parts, time_ms = fetched
        if parts is not None and not self._load(<tuple>parts, self._states + slot * self._width):
            return -1
        self._slots[slot] = _Slot(key, start, -1 if time_ms is None else time_ms, 0, time_ms is None)
        if parts is None:
            self._slots[slot].time = -2  # A reduction begins with the first value.
        self._table[place] = slot
        self._count += 1
        return slot

    cdef bint _load(self, tuple parts, Register* to) except -1:
        cdef Py_ssize_t at
        cdef int64_t kind
        for at in range(self._width):
            part, kind = parts[at], _of(self._kinds)[at]
            if kind == FLOAT:
                if type(part) is not float:
                    return False
                to[at].d = part
            elif type(part) is not (bool if kind == BOOL else int) or not -(1 << 63) <= part < 1 << 63:
                return False
            else:
                to[at].i = part
        return True

    cdef tuple _parts(self, Register* state):
        cdef Py_ssize_t at
        cdef int64_t kind
        cdef list parts = []
        for at in range(self._width):
            kind = _of(self._kinds)[at]
            if kind == FLOAT:
                parts.append(state[at].d)
            elif kind == BOOL:
                parts.append(state[at].i != 0)
            else:
                parts.append(state[at].i)
        return tuple(parts)

    def run(self, keys, times, list columns, Py_ssize_t start, Py_ssize_t stop, int64_t stream_time_ms, int64_t end_ms, fetch, list updates):
        """Fold rows until one needs Python, and return its index, or ``stop``.

        ``fetch(key, start)`` returns ``(parts, time)`` of a state, ``(parts, None)`` of a new one, for which parts are
        None if it is the first value, and None if Python has to compute the row.  A row needs Python too if its key is
        below 0, if stream time would reach ``end_ms`` with it, and if a part of a new state is no finite number.  Each
        update is appended to ``updates``, unless that is None, as (row, key, start, time, parts).
        """
        cdef int64_t* key_of = _of(keys)
        cdef int64_t* time_of = _of(times)
        cdef int64_t* code = _of(self._code)
        cdef int64_t* kinds = _of(self._kinds)
        cdef int64_t* column[64]
        cdef Py_ssize_t row, at, hop, hops, slot, width = self._width, column_count = len(columns)
        cdef Register* r = self._registers
        cdef int64_t time, first, begin, before = 0
        cdef Py_ssize_t late
        cdef bint is_windowed = self._size_ms > 0
        cdef int result = 0
        if column_count > 64:
            return start
        for at in range(column_count):
            column[at] = _of(columns[at])
        hops = (self._size_ms + self._advance_ms - 1) // self._advance_ms if is_windowed else 1
        # A row changes its windows together or not at all.
        cdef array.array changed = _new(hops)
        cdef array.array pending = _new(hops * width)
        cdef Register* news = <Register*>_of(pending)
        self.stream_time_ms = stream_time_ms
        self.late = []
        for row in range(start, stop):
            if key_of[row] < 0:
                return row
            time = time_of[row]
            for at in range(column_count):
                r[self._column_at + at].i = column[at][row]
            result = _execute(code, 0, r)
            if result == 1:
                continue
            before = self.stream_time_ms
            if time > before:
                before = time
            if result == 2 or before >= end_ms:
                return row
            begin = 0
            first = 0
            if is_windowed:
                first = time + self._advance_ms - self._size_ms
                first = first - first % self._advance_ms if first > 0 else 0
                begin = first
            hop = 0
            late = len(self.late)
            while begin <= time:
                if is_windowed and time < before and begin + self._size_ms <= before - self._grace_ms:
                    self.late.append((row, before - self._grace_ms - self._size_ms - begin))
                    begin += self._advance_ms
                    continue
                slot = self._slot(key_of[row], begin, fetch)
                if slot < 0:
                    del self.late[late:]
                    return row
                if self._slots[slot].time == -2:
                    result = _execute(code, self._first_at, r)
                else:
                    memcpy(r + self._state_at, self._states + slot * width, width * sizeof(Register))
                    result = _execute(code, self._update_at, r)
                if result == 2:
                    del self.late[late:]
                    return row
                for at in range(width):
                    if kinds[at] == FLOAT and not isfinite(r[self._new_at + at].d):
                        del self.late[late:]
                        return row
                memcpy(news + hop * width, r + self._new_at, width * sizeof(Register))
                _of(changed)[hop] = slot
                hop += 1
                if not is_windowed:
                    break
                begin += self._advance_ms
            self.stream_time_ms = before
            for at in range(hop):
                slot = _of(changed)[at]
                memcpy(self._states + slot * width, news + at * width, width * sizeof(Register))
                self._updates_count += 1
                self._slots[slot].changed = self._updates_count
                if self._slots[slot].is_new or time > self._slots[slot].time:
                    self._slots[slot].time = time
                    self._slots[slot].is_new = False
                if updates is not None:
                    updates.append((row, self._slots[slot].key, self._slots[slot].start, self._slots[slot].time, self._parts(news + at * width)))
        return stop

    def changes(self):
        """Return (key, start, time, parts) of the states that have changed, in the order in which they changed last."""
        cdef Py_ssize_t slot
        order = sorted((self._slots[slot].changed, slot) for slot in range(self._count) if self._slots[slot].changed)
        result = []
        for _, number in order:
            slot = number
            result.append((self._slots[slot].key, self._slots[slot].start, self._slots[slot].time, self._parts(self._states + slot * self._width)))
        return result


def mapped(code, constants, Py_ssize_t registers_size, Py_ssize_t column_at, Py_ssize_t result_at, list columns):
    """Return what a program computes for each row, or None if Python has to compute one."""
    cdef array.array instructions = int64(code), numbers = int64(constants)
    cdef Py_ssize_t row, at, size = len(columns[0]), count = len(columns)
    cdef array.array registers = _new(registers_size + 1), result = _new(size)
    cdef Register* r = <Register*>_of(registers)
    for at in range(len(numbers)):
        r[at].i = _of(numbers)[at]
    for row in range(size):
        for at in range(count):
            r[column_at + at].i = _of(columns[at])[row]
        if _execute(_of(instructions), 0, r):
            return None
        _of(result)[row] = r[result_at].i
    return result
