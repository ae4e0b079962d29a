"""Audio formats of clients: decoding of their audio, and encoding of an answer's audio.

Knows the format structs of the settings, but no session and no wire format.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from app.media import g711
from app.media.audio import pcm16, pcm16_count
from app.realtime.protocol.items import Item, MessageItem, UserAudio
from app.realtime.protocol.options import PcmaFormat, PcmFormat, PcmuFormat, SpeakerFormat
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import Resampler, resample
from engine.core import Pcm, Wave

LONG_BYTES = 96_000
"""Audio of more bytes is resampled off the event loop, since it would block the loop for milliseconds."""

Format = PcmFormat | PcmuFormat | PcmaFormat


class MicrophoneDecoder:
    """Decodes one microphone's bytes, in order, to int16 [samples] at ``rate_hz``. Raises MediaError for half a
    sample.
    """

    def __init__(self, format: Format, rate_hz: int = MIC_RATE_HZ) -> None:
        self._format = format
        self._resampler = Resampler(rate_of(format), rate_hz)

    def push(self, data: bytes) -> Pcm:
        return self._resampler.push(samples_of(data, self._format))


class OutputEncoder:
    """Encodes the float32 [samples] of one answer at SPEAKER_RATE_HZ, in order."""

    def __init__(self, format: SpeakerFormat | Format) -> None:
        self._format = format
        self._resampler = Resampler(SPEAKER_RATE_HZ, rate_of(format))

    def push(self, wave: Wave) -> bytes:
        return self.push_pcm((np.clip(wave, -1, 1) * 32767).astype(np.int16))

    def push_pcm(self, pcm: Pcm) -> bytes:
        """Resample int16 [samples] from SPEAKER_RATE_HZ and encode them.

        At the end, ``flush`` returns the last 1 ms.
        """
        return self._encode(self._resampler.push(pcm))

    def flush(self) -> bytes:
        """Return the audio still in the resampler, about 1 ms."""
        return self._encode(self._resampler.flush())

    def _encode(self, pcm: Pcm) -> bytes:
        match self._format:
            case SpeakerFormat() | PcmFormat():
                return pcm.astype("<i2").tobytes()
            case PcmuFormat():
                return g711.encode_ulaw(pcm)
            case PcmaFormat():
                return g711.encode_alaw(pcm)
            case _:
                assert_never(self._format)


def sample_count(data: bytes, format: Format) -> int:
    """Return the number of samples without decoding. Raises MediaError."""
    return pcm16_count(data) if isinstance(format, PcmFormat) else len(data)


def samples_of(data: bytes, format: Format) -> Pcm:
    """Decode to int16 [samples] at the format's own rate. Raises MediaError."""
    match format:
        case PcmFormat():
            return pcm16(data)
        case PcmuFormat():
            return g711.decode_ulaw(data)
        case PcmaFormat():
            return g711.decode_alaw(data)
        case _:
            assert_never(format)


def sounds_of(item: Item) -> tuple[bytes, ...]:
    """Return the user's audio in an item, part by part: int16 little-endian at SPEAKER_RATE_HZ."""
    return tuple(
        resample(np.asarray(part.pcm, np.int16), MIC_RATE_HZ, SPEAKER_RATE_HZ).astype("<i2").tobytes()
        for part in _user_audio(item)
    )


def is_long(item: Item) -> bool:
    """Return whether ``sounds_of`` takes too long for the event loop."""
    return sum(part.pcm.nbytes for part in _user_audio(item)) > LONG_BYTES


def _user_audio(item: Item) -> list[UserAudio]:
    content = item.content if isinstance(item, MessageItem) else ()
    return [part for part in content if isinstance(part, UserAudio)]


def rate_of(format: Format | SpeakerFormat) -> int:
    """Return the sample rate in Hz."""
    return format.rate if isinstance(format, PcmFormat | SpeakerFormat) else g711.RATE_HZ
