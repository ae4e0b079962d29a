"""Reads the ``metadata_props`` of an ONNX file without loading its network, and without a runtime.

A file is an onnx.ModelProto (protobuf): field 7 is the network, and each field 14 a pair of strings. All other fields
are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import SEEK_CUR, BytesIO
from pathlib import Path
from typing import IO

from engine.errors import WeightsError

_GRAPH, _METADATA, _KEY, _VALUE = 7, 14, 1, 2
_LENGTHS = {1: 8, 5: 4}  # bytes of wire types with a fixed length
MOST_BYTES = 1 << 20  # maximum bytes of one pair; a longer one is skipped
MOST_PAIRS = 1 << 22  # maximum bytes of all pairs
MOST_FIELDS = 10_000  # maximum number of fields; a sparse file has billions that take no bytes on the disk


def metadata_of(path: Path) -> dict[str, str]:
    """Return the metadata of an ONNX file. Raises WeightsError if it is missing, truncated, or not ONNX."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            found = [*_fields(file, size, {_METADATA})]
        if all(number != _GRAPH for number, _ in found):
            raise ValueError("no network")
        said = [data for number, data in found if number == _METADATA]
        pairs = [dict(_fields(BytesIO(data), len(data), {_KEY, _VALUE})) for data in said]
        return {pair[_KEY].decode(): pair.get(_VALUE, b"").decode() for pair in pairs}
    except FileNotFoundError as error:
        raise WeightsError(f"{path} is missing") from error
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"{path} is not an ONNX file, or is incomplete: fetch it again") from error


def with_metadata(values: Mapping[str, str]) -> bytes:
    """Return bytes that, appended to an ONNX file, add these pairs."""
    pairs = (_field(_KEY, key.encode()) + _field(_VALUE, value.encode()) for key, value in values.items())
    return b"".join(_field(_METADATA, pair) for pair in pairs)


def _field(number: int, data: bytes) -> bytes:
    return _as_varint(number << 3 | 2) + _as_varint(len(data)) + data


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _fields(file: IO[bytes], size: int, wanted: set[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the fields that have a length; only wanted ones with their bytes. Raises ValueError for other data."""
    fields, room = MOST_FIELDS, MOST_PAIRS
    while file.tell() < size:
        number, wire_type = divmod(_varint(file), 8)
        fields -= 1
        if not number or fields < 0:
            raise ValueError("not protobuf")
        if wire_type == 0:
            _varint(file)
            continue
        length = _varint(file) if wire_type == 2 else _LENGTHS.get(wire_type, -1)
        if length < 0 or file.tell() + length > size:
            raise ValueError("not protobuf")
        if number in wanted and length <= MOST_BYTES:
            room -= length
            if room < 0:
                raise ValueError("too much metadata")
            yield number, file.read(length)
        else:
            file.seek(length, SEEK_CUR)
            yield number, b""


def _varint(file: IO[bytes]) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("not protobuf")
