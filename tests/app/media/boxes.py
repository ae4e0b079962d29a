"""MP4 and WebM files made by hand, whose tables announce more than the file contains."""

from __future__ import annotations

import struct


def box(kind: bytes, *body: bytes) -> bytes:
    content = b"".join(body)
    return struct.pack(">I", 8 + len(content)) + kind + content


def full_box(kind: bytes, *body: bytes, flags: int = 0) -> bytes:
    return box(kind, struct.pack(">I", flags), *body)


def table(kind: bytes, *entries: tuple[int, ...]) -> bytes:
    """A box with a count and 32-bit numbers."""
    numbers = [number for entry in entries for number in entry]
    return full_box(kind, struct.pack(f">I{len(numbers)}I", len(entries), *numbers))


def track(
    count: int, duration: int = 1024, in_chunk: int | None = None, edits: int = 0, more: bytes = b"", id: int = 1
) -> bytes:
    """A track of ``count`` samples of one size, all at the start of the file. ``more`` is in its sample table."""
    entry = box(b"alac", bytes(6) + struct.pack(">H", 1) + bytes(8) + struct.pack(">HHHHI", 2, 16, 0, 0, 44_100 << 16))
    tables = (
        full_box(b"stsd", struct.pack(">I", 1), entry),
        table(b"stts", (count, duration)),
        table(b"stsc", (1, count if in_chunk is None else in_chunk, 1)),
        full_box(b"stsz", struct.pack(">II", 100, count)),
        table(b"stco", (40,)),
    )
    data_reference = full_box(b"dref", struct.pack(">I", 1), full_box(b"url ", flags=1))
    info = box(b"minf", full_box(b"smhd", bytes(4)), box(b"dinf", data_reference), box(b"stbl", *tables, more))
    header = full_box(b"mdhd", struct.pack(">IIIII", 0, 0, 44_100, 1024, 0))
    handler = full_box(b"hdlr", bytes(4), b"soun", bytes(12), b"a\0")
    edit_list = box(b"edts", table(b"elst", *[(1000, 0, 1 << 16)] * edits)) if edits else b""
    head = full_box(b"tkhd", struct.pack(">IIIII", 0, 0, id, 0, 1024), bytes(60), flags=7)
    return box(b"trak", head, edit_list, box(b"mdia", header, handler, info))


def mp4(*movie: bytes, rest: bytes = b"") -> bytes:
    head = full_box(b"mvhd", struct.pack(">IIII", 0, 0, 1000, 1000), bytes(80))
    return box(b"ftyp", b"M4A \0\0\0\0M4A ") + box(b"moov", head, *movie) + rest + box(b"mdat", bytes(100))


def fragment(count: int) -> bytes:
    """A fragment whose run announces samples without any byte for each."""
    run = full_box(b"trun", struct.pack(">I", count))
    head = full_box(b"tfhd", struct.pack(">I", 1))
    return box(b"moof", full_box(b"mfhd", struct.pack(">I", 1)), box(b"traf", head, run))


def element(kind: str, *body: bytes, size: int | None = None) -> bytes:
    """An EBML element with its length in eight bytes."""
    content = b"".join(body)
    length = len(content) if size is None else size
    return bytes.fromhex(kind) + b"\x01" + length.to_bytes(7, "big") + content
