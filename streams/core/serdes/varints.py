"""Whole numbers in Kafka's variable length: 7 bits per byte, lowest first (``ByteUtils`` of Kafka).

Signed numbers are zigzag: small ones are short, whatever their sign.
"""

#: The numbers from 0 to 63, which are one byte.
_SMALL = [bytes([2 * number]) for number in range(64)]


def varint(number: int) -> bytes:
    r"""Return a number as a zigzag varint.

    >>> varint(0), varint(-1), varint(64)
    (b'\x00', b'\x01', b'\x80\x01')
    """
    if 0 <= number < 64:
        return _SMALL[number]
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    r"""Return a number that is not negative as an unsigned varint.

    >>> uvarint(0), uvarint(127), uvarint(128)
    (b'\x00', b'\x7f', b'\x80\x01')
    """
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, place: int = 0) -> tuple[int, int]:
    """Return the zigzag varint at ``place``, and the place after it.

    Raises:
        IndexError: the bytes end within the number.
    """
    number, place = read_uvarint(data, place)
    return (number >> 1) ^ -(number & 1), place


def read_uvarint(data: bytes, place: int = 0) -> tuple[int, int]:
    """Return the unsigned varint at ``place``, and the place after it.

    Raises:
        IndexError: the bytes end within the number.
    """
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
