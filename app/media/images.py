"""Decoding of PNG and JPEG images, whose size is read from the header before anything is decoded.

Raises MediaError with one sentence. Knows no session. Never reads files or URLs that a client names.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Literal, cast

import av
import av.error
import numpy as np
import pybase64
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from app.media.audio import MediaError, decode_base64

MAX_PIXELS = 16_000_000
"""Maximum number of pixels, 48 MB once decoded: more than any camera image that a model downscales anyway."""

MAX_IMAGE_BYTES = 10 * 1024 * 1024


ImageKind = Literal["png", "mjpeg"]
"""FFmpeg's name of an image decoder."""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A checked but undecoded PNG or JPEG, as returned by ``image_of``."""

    data: bytes
    kind: ImageKind
    width: int
    height: int

    @property
    def size(self) -> int:
        """Return the bytes of its pixels once decoded."""
        return self.width * self.height * 3

    def decode(self) -> NDArray[np.uint8]:
        """Decode to uint8 [height, width, 3], upright; of a PNG with several images the first. Raises MediaError."""
        data = _only_picture(self) if self.kind == "png" else _checked_jpeg(self.data)
        try:
            decoder: Any = av.CodecContext.create(self.kind, "r")
            decoder.options = {"max_pixels": f"{(self.width + _EDGE) * (self.height + _EDGE)}"}
            frame = cast("VideoFrame", [*decoder.decode(av.Packet(data)), *decoder.decode(None)][0])
            pixels = cast("NDArray[np.uint8]", frame.to_ndarray(format="rgb24"))
        except (av.error.FFmpegError, IndexError, ValueError):
            raise MediaError("the image is damaged") from None
        return np.ascontiguousarray(np.rot90(pixels, k=round(rotation(frame) / 90)))


def image_of(data: bytes) -> Image:
    """Read the header of a PNG or JPEG. Raises MediaError if it is neither, or too large."""
    kind, (width, height) = _header(data)
    if not (width and height):
        raise MediaError("the image has no pixels")
    if width * height > MAX_PIXELS:
        raise MediaError(f"the image has {width}x{height} pixels; the limit is {MAX_PIXELS / 1e6:g} million")
    return Image(data, kind, width, height)


def image_of_url(url: str) -> Image:
    """Return the image of a ``data:image/png;base64,`` or ``data:image/jpeg;base64,`` URI. Fetches nothing."""
    head, comma, body = url.partition(",")
    if not comma or head not in ("data:image/png;base64", "data:image/jpeg;base64", "data:image/jpg;base64"):
        raise MediaError("image_url must be a data URI of a PNG or JPEG in base64; URLs are not fetched")
    if len(body) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise MediaError(f"the image is larger than {MAX_IMAGE_BYTES // 2**20} MiB")
    return image_of(decode_base64(body))


def encode_frame(frame: VideoFrame, longest: int) -> tuple[NDArray[np.uint8], bytes]:
    """Return a camera frame as uint8 [height, width, 3] and as JPEG, no side longer than ``longest`` pixels."""
    scale = min(1.0, longest / max(frame.width, frame.height))
    width, height = (max(2, round(side * scale) // 2 * 2) for side in (frame.width, frame.height))
    pixels = cast("NDArray[np.uint8]", frame.to_ndarray(format="rgb24", width=width, height=height))
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width = width
    encoder.height = height
    encoder.pix_fmt = "yuvj420p"
    encoder.time_base = Fraction(1, 1)
    small = frame.reformat(width, height, "yuvj420p")
    small.pts = 0
    small.time_base = Fraction(1, 1)
    return pixels, b"".join(bytes(packet) for packet in [*encoder.encode(small), *encoder.encode(None)])


def scaled(pixels: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    """Return an image, uint8 [height, width, 3], with no side longer than ``longest`` pixels."""
    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    return _resized(pixels, max(1, round(height * scale)), max(1, round(width * scale)))


def fitted(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return an image, uint8 [height, width, 3], scaled to fit and padded with black."""
    high, wide = pixels.shape[:2]
    scale = min(height / high, width / wide)
    inner = _resized(pixels, max(1, round(high * scale)), max(1, round(wide * scale)))
    top, left = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
    whole = inner if inner.shape[:2] == (height, width) else np.zeros((height, width, 3), np.uint8)
    whole[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
    return whole


def _resized(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    if pixels.shape[:2] == (height, width):
        return pixels
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    return cast("NDArray[np.uint8]", frame.to_ndarray(format="rgb24", width=width, height=height))


def image_url(jpeg: bytes) -> str:
    """Return a JPEG as a data URI."""
    return "data:image/jpeg;base64," + pybase64.b64encode(jpeg).decode("ascii")


def rotation(frame: Any) -> float:
    """Return the counter-clockwise rotation in degrees that makes a frame upright."""
    return float(getattr(frame, "rotation", 0) or 0)


def _header(data: bytes) -> tuple[ImageKind, tuple[int, int]]:
    """Return the decoder's name, and the width and height in the file's header."""
    if data[:8] == _PNG and data[12:16] == b"IHDR" and len(data) >= 29:
        return "png", struct.unpack(">II", data[16:24])
    if data[:2] == b"\xff\xd8":
        return "mjpeg", _jpeg_size(data)
    raise MediaError("the image is neither a PNG nor a JPEG")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the start-of-frame segment (ITU-T T.81, B.2.2)."""
    at = 2
    for _ in range(_MOST_MARKERS):
        if at + 9 > len(data) or data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    raise MediaError("the image is damaged")


_MOST_MARKERS = 4096
"""Maximum number of fill bytes and markers read before a JPEG's frame size. Cameras and editors write some dozens; ten
megabytes of them would take seconds.
"""

_PNG = b"\x89PNG\r\n\x1a\n"
_NEEDED = frozenset([b"IHDR", b"PLTE", b"tRNS", b"eXIf", b"IDAT", b"IEND"])
"""Chunks needed for the pixels. Others may inflate to any size (zTXt, iCCP), or belong to another image (fdAT)."""

_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples per pixel by colour type (W3C PNG, 11.2.1)."""

_BLOCK = 1 << 20
_EDGE = 128
"""Pixels that a decoder may add to a side. A second header in a JPEG must not make it larger than that."""


_COSTLY_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8\xda\xdb\xdd]")
"""JPEG segments that cost time whatever their length: frames, Huffman tables, scans (ITU-T T.81, table B.1)."""

_MOST_COSTLY_MARKERS = 400
"""Progressive images of cameras and editors have some dozens. Each scan walks over all blocks of the image."""


def _checked_jpeg(data: bytes) -> bytes:
    """Return the JPEG. Raises MediaError if it has more scans or tables than any ordinary image."""
    markers = islice(_COSTLY_MARKER.finditer(data), _MOST_COSTLY_MARKERS + 1)
    if sum(1 for _ in markers) > _MOST_COSTLY_MARKERS:
        raise MediaError("the image has too many scans or tables: save it as a baseline JPEG")
    return data


def _only_picture(image: Image) -> bytes:
    """Return a PNG with only the chunks of its image. Raises MediaError if it has more pixels than its header says."""
    kept, pixels = [_PNG], list[bytes]()
    for kind, chunk in _chunks(image.data):
        kept.append(chunk)
        if kind == b"IDAT":
            pixels.append(chunk[8:-4])
    depth, colour = image.data[24:26]
    row = 1 + (image.width * depth * _SAMPLES.get(colour, 4) + 7) // 8
    _check_inflated(b"".join(pixels), 2 * row * image.height)  # twice: an interlaced image has rows for each pass
    return b"".join(kept)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the needed chunks, with their name, length and checksum, until the file ends."""
    at = len(_PNG)
    while at + 12 <= len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        if kind in _NEEDED:
            yield kind, png[at : at + 12 + length]
        at += 12 + length


def _check_inflated(data: bytes, most: int) -> None:
    """Raise MediaError if the data inflates to more than ``most`` bytes, since a decoder would inflate all of it."""
    inflater, size = zlib.decompressobj(), 0
    try:
        while data and not inflater.eof and size <= most:
            size += len(inflater.decompress(data, _BLOCK))
            data = inflater.unconsumed_tail
    except zlib.error:
        raise MediaError("the image is damaged") from None
    if size > most:
        raise MediaError("the image is larger than its header says")
