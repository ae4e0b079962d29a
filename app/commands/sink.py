"""Where an answer's sound goes: a WAV file, standard output, a loudspeaker, or nowhere.

Every sink takes float32 [samples] at SPEAKER_RATE_HZ and gives 16 bits to what is behind it. What blocks runs in a
thread. Knows no request.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import numpy as np
import soundfile

from engine import SPEAKER_RATE_HZ, EngineError
from engine.core import Wave

STDOUT = "-"


class SinkError(EngineError):
    """Sound cannot go where it was to go."""

    code = "invalid_output"


class ListenerGone(Exception):
    """The other end of the pipe was closed."""


class Sink(Protocol):
    """``name`` says where the sound goes, for people."""

    name: str

    async def write(self, samples: Wave) -> None: ...

    async def close(self) -> None:
        """Let everything that was written be heard or lie on disk."""
        ...


def pcm16(samples: Wave) -> bytes:
    """float32 in [-1, 1] as little-endian 16-bit samples."""
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def device_available() -> str | None:
    """None if sound can be played on this machine; else why not, as one sentence."""
    try:
        sounddevice: Any = importlib.import_module("sounddevice")
        sounddevice.query_devices(kind="output")
    except ImportError:
        return "the sounddevice package is not installed (pip install 'parley[device]')"
    except OSError as error:
        return f"PortAudio cannot be loaded ({' '.join(str(error).split())})"
    except Exception as error:  # noqa: BLE001 - sounddevice raises its own PortAudioError, and ValueError for "no device"
        return f"there is no output device ({' '.join(str(error).split())})"
    return None


@asynccontextmanager
async def open_sink(output: str | None, otherwise: str | None = None) -> AsyncGenerator[Sink]:
    """The sink for ``-o``; without one a loudspeaker, if there is any, else the file ``otherwise``, else nowhere."""
    sink = _sink(output, otherwise)
    try:
        yield sink
    finally:
        await sink.close()


def _sink(output: str | None, otherwise: str | None) -> Sink:
    if output == STDOUT:
        return StandardOutput()
    if output is not None:
        return WavFile(output)
    if device_available() is None:
        return Loudspeaker()
    return Nowhere() if otherwise is None else WavFile(otherwise)


class WavFile:
    """A mono 16-bit WAV file, written as the sound comes. Raises SinkError if it cannot be."""

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            self._file = soundfile.SoundFile(path, "w", SPEAKER_RATE_HZ, 1, "PCM_16", format="WAV")
        except (soundfile.SoundFileError, OSError) as error:
            raise SinkError(f"cannot write {path}: {getattr(error, 'error_string', error)}") from None

    async def write(self, samples: Wave) -> None:
        await asyncio.to_thread(self._file.buffer_write, pcm16(samples), "int16")

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)


class StandardOutput:
    """Raw s16le mono samples on standard output, for a player at the other end of a pipe."""

    name = "standard output"

    async def write(self, samples: Wave) -> None:
        await asyncio.to_thread(self._write, pcm16(samples))

    async def close(self) -> None:
        """Everything was flushed as it came."""

    def _write(self, data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter's last flush must not fail
            raise ListenerGone from None


class Loudspeaker:
    """The default output device."""

    name = "the loudspeaker"

    def __init__(self) -> None:
        sounddevice: Any = importlib.import_module("sounddevice")
        try:
            self._stream: Any = sounddevice.RawOutputStream(samplerate=SPEAKER_RATE_HZ, channels=1, dtype="int16")
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise SinkError(f"cannot play sound: {error}; give a file with -o") from None

    async def write(self, samples: Wave) -> None:
        await asyncio.to_thread(self._stream.write, pcm16(samples))

    async def close(self) -> None:
        await asyncio.to_thread(self._stream.stop)
        self._stream.close()


class Nowhere:
    """No sound is wanted, or there is no way to make it."""

    name = "nowhere"

    async def write(self, samples: Wave) -> None:
        """Drop it."""

    async def close(self) -> None:
        """There is nothing to end."""
