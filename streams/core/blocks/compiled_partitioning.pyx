# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The default partitioner for a block of keys, compiled: the same numbers as ``partitioning`` gives.

Optional: where there was no C compiler at installation, ``partitioning`` goes on with its own loop.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t _murmur2(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t hashed = 0x9747B28CU ^ <uint32_t>size
    cdef uint32_t word
    cdef Py_ssize_t place, whole = size & ~3
    for place in range(0, whole, 4):
        word = (
            data[place]
            | (<uint32_t>data[place + 1] << 8)
            | (<uint32_t>data[place + 2] << 16)
            | (<uint32_t>data[place + 3] << 24)
        ) * m
        hashed = hashed * m ^ (word ^ word >> 24) * m
    if size & 3:
        word = data[whole]
        if (size & 3) > 1:
            word |= <uint32_t>data[whole + 1] << 8
        if (size & 3) > 2:
            word |= <uint32_t>data[whole + 2] << 16
        hashed = (hashed ^ word) * m
    hashed = (hashed ^ hashed >> 13) * m
    return hashed ^ hashed >> 15


def partitions_for(keys, int partitions):
    """Return the partition of each key; the block form of ``partition_for``."""
    cdef list numbers = []
    cdef bytes key
    for key in keys:
        if key is None:
            raise TypeError("a record without a key has no partition of its own")
        numbers.append((_murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % partitions)
    return numbers
