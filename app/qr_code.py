"""QR codes of web addresses: ISO/IEC 18004, byte mode, error correction level L, versions 1 to 6."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Modules = NDArray[np.bool_]
"""A code as [row, column]; true is dark."""

VERSIONS = {1: (19, 7, 1), 2: (34, 10, 1), 3: (55, 15, 1), 4: (80, 20, 1), 5: (108, 26, 1), 6: (136, 18, 2)}
"""Per version: data codewords, error correction codewords of each block, and number of blocks."""

MAX_BYTES = VERSIONS[6][0] - 2  # mode, length and terminator take two bytes
QUIET = 4  # light modules around the code
FORMAT = 0b111011111000100  # level L, mask 0

BLOCKS = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}

FIELD = 0x11D  # the polynomial of GF(256)
EXP = [1]
for _ in range(254):
    EXP.append(EXP[-1] << 1 ^ (FIELD if EXP[-1] & 0x80 else 0))
LOG = {value: power for power, value in enumerate(EXP)}


def qr_code(text: str) -> Modules:
    """Return the QR code of a text. Raises ValueError if its UTF-8 is longer than ``MAX_BYTES``.

    Readers accept any of the eight masks, so the code uses the first one instead of comparing all.
    """
    data = text.encode()
    version = next((one for one, (room, _, _) in VERSIONS.items() if len(data) <= room - 2), None)
    if version is None:
        raise ValueError(f"a QR code takes at most {MAX_BYTES} bytes (got {len(data)})")
    code, reserved = _patterns(17 + 4 * version)
    for (y, x), bit in zip(_zigzag(reserved), _bits(_codewords(data, version)), strict=False):
        code[y, x] = bit
    y, x = np.indices(code.shape)
    code ^= ((y + x) % 2 == 0) & ~reserved
    _write_format(code)
    return code


def svg_path(code: Modules) -> str:
    """Return the dark modules as an SVG path, one unit each, within a quiet zone."""
    return "".join(f"M{x + QUIET} {y + QUIET}h1v1h-1z" for y, x in np.argwhere(code).tolist())


def terminal_lines(code: Modules) -> Iterator[str]:
    """Yield the code as lines for a terminal that prints them black on white, two rows of modules to a line."""
    framed = np.pad(code, ((QUIET, QUIET + len(code) % 2), (QUIET, QUIET)))
    for upper, lower in zip(framed[::2].tolist(), framed[1::2].tolist(), strict=True):
        yield "".join(BLOCKS[pair] for pair in zip(upper, lower, strict=True))


def _codewords(data: bytes, version: int) -> bytes:
    """Return the message with padding and error correction, its blocks interleaved."""
    room, check, blocks = VERSIONS[version]
    bits = f"0100{len(data):08b}" + "".join(f"{byte:08b}" for byte in data) + "0000"
    message = int(bits, 2).to_bytes(len(bits) // 8, "big")
    message += bytes((0xEC, 0x11)[n % 2] for n in range(room - len(message)))
    size = room // blocks
    parts = [message[at : at + size] for at in range(0, room, size)]
    checks = [_error_correction(part, check) for part in parts]
    return bytes(byte for group in (parts, checks) for column in zip(*group, strict=True) for byte in column)


def _error_correction(message: bytes, count: int) -> bytes:
    """Return the Reed-Solomon codewords of a block."""
    generator = [1]
    for power in range(count):
        scaled = [_product(one, EXP[power]) for one in generator]
        generator = [a ^ b for a, b in zip([*generator, 0], [0, *scaled], strict=True)]
    rest = [0] * count
    for byte in message:
        factor = byte ^ rest[0]
        rest = [a ^ _product(one, factor) for a, one in zip([*rest[1:], 0], generator[1:], strict=True)]
    return bytes(rest)


def _product(a: int, b: int) -> int:
    """Multiply in GF(256)."""
    return EXP[(LOG[a] + LOG[b]) % 255] if a and b else 0


def _bits(codewords: bytes) -> Iterator[bool]:
    for byte in codewords:
        yield from (bool(byte >> shift & 1) for shift in range(7, -1, -1))


def _patterns(size: int) -> tuple[Modules, Modules]:
    """Return the function patterns, and the modules that take no data."""
    dark = np.zeros((size, size), dtype=bool)
    reserved = np.zeros_like(dark)
    dark[6, ::2] = dark[::2, 6] = True  # timing
    reserved[6] = reserved[:, 6] = True
    for y, x in ((3, 3), (3, size - 4), (size - 4, 3)):  # finders
        _square(dark, y, x, radius=4, outline=3)
    reserved[:9, :9] = reserved[:9, -8:] = reserved[-8:, :9] = True
    if size > 21:  # alignment
        _square(dark, size - 7, size - 7, radius=2, outline=2)
        reserved[size - 9 : size - 4, size - 9 : size - 4] = True
    dark[size - 8, 8] = True
    return dark, reserved


def _square(dark: Modules, row: int, column: int, radius: int, outline: int) -> None:
    """Draw a dark outline around a dark middle, and make the rest of the square light."""
    size = len(dark)
    for y in range(max(0, row - radius), min(size, row + radius + 1)):
        for x in range(max(0, column - radius), min(size, column + radius + 1)):
            distance = max(abs(y - row), abs(x - column))
            dark[y, x] = distance == outline or distance < outline - 1


def _zigzag(reserved: Modules) -> Iterator[tuple[int, int]]:
    """Yield the modules of the data: pairs of columns from the right, alternately upwards and downwards."""
    size = len(reserved)
    for n, right in enumerate([*range(size - 1, 6, -2), 5, 3, 1]):
        for step in range(size):
            y = step if n % 2 else size - 1 - step
            yield from ((y, x) for x in (right, right - 1) if not reserved[y, x])


def _write_format(code: Modules) -> None:
    """Write the format twice: around the first finder, and beside the other two."""
    bits = [bool(FORMAT >> n & 1) for n in range(15)]
    for bit, y in zip(bits, (*range(6), 7, 8, *range(-7, 0)), strict=True):
        code[y, 8] = bit
    for bit, x in zip(bits, (*range(-1, -9, -1), 7, *range(5, -1, -1)), strict=True):
        code[8, x] = bit
