"""G.711 against ffmpeg's coder, value for value."""

from __future__ import annotations

from typing import Any

import av
import numpy as np
import pytest

from app.media import g711

EVERY = np.arange(-32_768, 32_768).astype(np.int16)
LAWS = [("pcm_mulaw", g711.encode_ulaw, g711.decode_ulaw), ("pcm_alaw", g711.encode_alaw, g711.decode_alaw)]


@pytest.mark.parametrize(("codec", "encode", "decode"), LAWS)
def test_every_byte_decodes_as_in_ffmpeg(codec: str, encode: object, decode: object) -> None:
    data = bytes(range(256))
    decoder: Any = av.CodecContext.create(codec, "r")
    decoder.sample_rate, decoder.layout = g711.RATE_HZ, "mono"
    expected = decoder.decode(av.Packet(data))[0].to_ndarray().reshape(-1)
    assert (decode(data) == expected).all()  # type: ignore[operator]


@pytest.mark.parametrize(("codec", "encode", "decode"), LAWS)
def test_every_sample_goes_to_a_nearest_value_and_every_value_to_itself(
    codec: str, encode: object, decode: object
) -> None:
    values = np.unique(decode(bytes(range(256))).astype(np.int32))  # type: ignore[operator]
    back = decode(encode(EVERY)).astype(np.int32)  # type: ignore[operator]
    at = np.clip(np.searchsorted(values, EVERY.astype(np.int32)), 1, len(values) - 1)
    step = values[at] - values[at - 1]
    assert (np.abs(back - np.clip(EVERY, values[0], values[-1])) <= step).all()
    assert (decode(encode(values.astype(np.int16))) == values).all()  # type: ignore[operator]
    assert (np.sign(back[EVERY > 100]) > 0).all()
