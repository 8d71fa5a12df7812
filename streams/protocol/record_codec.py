"""Selection of the record codec: the compiled one if it is installed, otherwise the plain Python one.

Both codecs produce the same bytes and columns (see ``tests/protocol/test_record_codec.py``).
"""

from streams.protocol.plain_codec import record_size

try:
    from streams.protocol.compiled_codec import check_records, decode_records, encode_records
except ImportError:  # The package was installed without a C compiler.
    from streams.protocol.plain_codec import check_records, decode_records, encode_records

    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = ["IS_COMPILED", "check_records", "decode_records", "encode_records", "record_size"]
