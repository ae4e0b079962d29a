"""Pictures: weighed by their headers, and nothing decoded that the header does not say."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.media.audio import MediaError
from app.media.images import image_of, image_of_url


def jpeg(orientation: int | None = None) -> bytes:
    """48 wide, 32 high, its left half white; with the EXIF orientation that a camera writes."""
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 48, 32, "yuvj420p", Fraction(1)
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:, :24] = 255
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuvj420p")
    frame.pts = 0
    data = b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
    if orientation is None:
        return data
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01" + entry + bytes(4)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int = 8, height: int = 4, pixels: bytes | None = None, more: bytes = b"", interlaced: bool = False
) -> bytes:
    """White, unless its ``pixels`` (filtered rows of 8-bit RGB) are given."""
    rows = (b"\x00" + b"\xff" * width * 3) * height if pixels is None else pixels
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + header + more + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


FILL = (b"\xff", b"\xff\x01", b"\xff\xd0", b"\xff\xe0\x00\x02")
"""What may stand before a frame's size: fill bytes, markers that stand alone, segments without content."""


@pytest.mark.parametrize("fill", FILL)
def test_a_header_without_an_end_is_not_read_to_its_end(fill: bytes) -> None:
    """Of 10 MB of them each server's event loop read for seconds."""
    data = jpeg()
    some, many = (data[:2] + fill * count + data[2:] for count in (1000, 5000))
    assert (image_of(some).width, image_of(some).height) == (48, 32)
    with pytest.raises(MediaError, match="damaged"):
        image_of(many)


@pytest.mark.fault("I6.3")
def test_pictures_are_upright() -> None:
    assert image_of(jpeg()).decode().shape == (32, 48, 3)
    assert image_of(jpeg()).decode()[16, 4, 0] > 200
    turned = image_of(jpeg(6)).decode()  # "the 0th row is the visual right-hand side": shown turned right
    assert turned.shape == (48, 32, 3)
    assert turned[4, 16, 0] > 200  # the left half has become the upper one
    assert turned[44, 16, 0] < 50
    upside_down = image_of(jpeg(3)).decode()
    assert upside_down[16, 44, 0] > 200


@pytest.mark.fault("I6.1", "I6.2")
def test_pictures_that_are_refused() -> None:
    bomb = bytearray(jpeg())
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    for data in (b"", b"\xff\xd8", jpeg()[:60], bytes(bomb), b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n" + bytes(30)):
        with pytest.raises(MediaError):
            image_of(data).decode()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 600))
@pytest.mark.fault("I6.2")
def test_damaged_pictures_never_crash(noise: bytes, at: int) -> None:
    data = jpeg()
    for damaged in (noise, data[:at] + noise + data[at:], data[:at]):
        with suppress(MediaError):
            assert image_of(damaged).decode().dtype == np.uint8


@pytest.mark.parametrize(
    "url", ["", "data:,", "data:image/png;base64", "data:image/gif;base64,AAAA", "https://x/y.png"]
)
@pytest.mark.fault("I8.1")
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(MediaError):
        image_of_url(url)


def test_what_a_picture_will_take_is_known_before_it_is_decoded() -> None:
    for data, shape in ((jpeg(), (32, 48, 3)), (jpeg(6), (48, 32, 3)), (png(), (4, 8, 3))):
        image = image_of(data)
        assert image.size == image.width * image.height * 3 == image.decode().nbytes
        assert image.decode().shape == shape


@pytest.mark.fault("I6.1")
@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP", b"fdAT", b"tEXt"])
def test_of_a_png_only_its_picture_is_read(kind: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder inflates a text or a colour profile whole: 800 kB of file were 1.6 GB."""
    read: list[bytes] = []
    packet = av.Packet
    monkeypatch.setattr(av, "Packet", lambda data: read.append(data) or packet(data))
    image = image_of(png(more=chunk(kind, b"name\x00\x00" + zlib.compress(bytes(10_000)))))
    assert image.decode().min() == 255
    assert kind in image.data
    assert [kind in data for data in read] == [False]


@pytest.mark.fault("I6.1")
def test_pixels_that_the_header_does_not_say_are_not_inflated() -> None:
    with pytest.raises(MediaError, match="larger than its header says"):
        image_of(png(8, 4, bytes(5_000_000))).decode()


@pytest.mark.fault("I6.1")
def test_a_second_header_does_not_make_a_picture_larger() -> None:
    data = jpeg()
    at = data.index(b"\xff\xc0")
    header = data[at : at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]]
    larger = header[:5] + struct.pack(">HH", 4000, 4000) + header[9:]
    with pytest.raises(MediaError):
        image_of(data[: at + len(header)] + larger + data[at + len(header) : -2] + bytes(600_000) + data[-2:]).decode()


def test_a_small_interlaced_picture_is_one() -> None:
    rows = (b"\x00" + b"\xff" * 3) * 2 + (b"\x00" + b"\xff" * 6)  # the first pixel, its neighbour, the row below
    assert image_of(png(2, 2, rows, interlaced=True)).decode().min() == 255
