"""G.711 for telephones: one byte per sample at 8 kHz. Tables are computed once.

Source: ITU-T G.711; the byte layout is that of RFC 3551, section 4.5.14 (PCMU and PCMA).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from engine.core import Pcm

RATE_HZ = 8_000

Bytes = NDArray[np.uint8]


def decode_ulaw(data: bytes) -> Pcm:
    """Decode to int16 [samples]."""
    return _ulaw_values()[np.frombuffer(data, np.uint8)]


def decode_alaw(data: bytes) -> Pcm:
    """Decode to int16 [samples]."""
    return _alaw_values()[np.frombuffer(data, np.uint8)]


def encode_ulaw(pcm: Pcm) -> bytes:
    """Encode int16 [samples], one byte each."""
    return _ulaw_bytes()[pcm.view(np.uint16)].tobytes()


def encode_alaw(pcm: Pcm) -> bytes:
    """Encode int16 [samples], one byte each."""
    return _alaw_bytes()[pcm.view(np.uint16)].tobytes()


@cache
def _ulaw_values() -> Pcm:
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    size = ((mantissa << 3) + 0x84 << exponent) - 0x84
    return np.where(code & 0x80, -size, size).astype(np.int16)


@cache
def _alaw_values() -> Pcm:
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    size = (mantissa << 4) + 8 + np.where(exponent > 0, 0x100, 0) << np.maximum(exponent - 1, 0)
    return np.where(code & 0x80, size, -size).astype(np.int16)


@cache
def _ulaw_bytes() -> Bytes:
    """Compute the byte of every 16-bit value: sign, segment of the biased magnitude, and the next four bits."""
    value = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)
    size = np.minimum(np.abs(value), 32_635) + 0x84
    exponent = np.log2(size).astype(np.int32) - 7
    code = np.where(value < 0, 0x80, 0) | exponent << 4 | (size >> exponent + 3 & 15)
    return (~code & 0xFF).astype(np.uint8)


@cache
def _alaw_bytes() -> Bytes:
    """Compute the byte of every 16-bit value: sign, segment and four bits of its upper thirteen.

    Negative magnitudes are in one's complement.
    """
    value = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32) >> 3
    size = np.where(value < 0, ~value, value)
    exponent = np.maximum(np.log2(np.maximum(size, 1)).astype(np.int32) - 4, 0)
    code = exponent << 4 | (size >> np.maximum(exponent, 1) & 15)
    return (code ^ np.where(value < 0, 0x55, 0xD5)).astype(np.uint8)
