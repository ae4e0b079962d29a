"""Destinations of an answer's audio: a file, standard output, a loudspeaker, or none.

Every sink accepts float32 [samples] at SPEAKER_RATE_HZ and writes 16 bits. Blocking calls run in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import sys
import wave
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from app.commands.terminal import forget
from app.http.sound import FileFormat, file_encoder
from app.http.sound import samples as pcm16
from engine import SPEAKER_RATE_HZ, EngineError
from engine.core import Wave
from engine.deployment.installation import install_command

STDOUT = "-"
FORMATS: dict[str, FileFormat] = {
    ".wav": "wav",
    ".mp3": "mp3",
    ".flac": "flac",
    ".ogg": "opus",
    ".opus": "opus",
    ".aac": "aac",
    "": "wav",
}
"""The format of an audio file by its suffix."""


class SinkError(EngineError):
    """Audio can't be written to its destination."""

    code = "invalid_output"


class ListenerGone(Exception):
    """The reader of the pipe has closed it."""


class Sink(Protocol):
    """A destination. ``name`` is shown to users."""

    name: str

    async def write(self, samples: Wave) -> None: ...

    async def close(self) -> None:
        """Wait until everything was played or written."""
        ...


def device_available() -> str | None:
    """Return None if this machine can play audio; otherwise the reason as one sentence."""
    try:
        sounddevice: Any = importlib.import_module("sounddevice")
        sounddevice.query_devices(kind="output")
    except ImportError:
        return f"the sounddevice package is not installed ({install_command('device')})"
    except OSError as error:
        return f"PortAudio cannot be loaded ({' '.join(str(error).split())})"
    except Exception as error:  # noqa: BLE001 - sounddevice raises its own PortAudioError, and ValueError for "no device"
        return f"no audio output device ({' '.join(str(error).split())})"
    return None


def check_output(output: str | None, otherwise: str | None = None) -> None:
    """Check, before anything slow starts, that `open_sink` will succeed. Raises SinkError.

    Existing files are not touched.
    """
    if output is None and otherwise is not None and device_available() is not None:
        output = otherwise
    if output is not None and output != STDOUT:
        check_file(output, tuple(FORMATS))


def check_file(path: str, suffixes: Sequence[str]) -> None:
    """Check that a file with this name can be written. Raises SinkError."""
    file = Path(path).expanduser()
    if file.is_dir():
        raise SinkError(f"cannot write {path}: it is a folder; use a file name in it")
    if file.suffix.lower() not in suffixes:
        known = ", ".join(suffix for suffix in suffixes if suffix)
        raise SinkError(f"cannot write {path}: the name of the file must end with one of {known}")
    if not file.parent.is_dir():
        raise SinkError(f"cannot write {path}: no such folder: {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        read_only = os.statvfs(file.parent).f_flag & os.ST_RDONLY
        why = "the disk is read-only" if read_only else "you have no permission to write there"
        raise SinkError(f"cannot write {path}: {why}; use another path")


@asynccontextmanager
async def open_sink(output: str | None, otherwise: str | None = None) -> AsyncGenerator[Sink]:
    """Open the sink for ``-o``; without it a loudspeaker if available, else the file ``otherwise``, else none."""
    sink = _sink(output, otherwise)
    try:
        yield sink
    finally:
        await sink.close()


def _sink(output: str | None, otherwise: str | None) -> Sink:
    if output == STDOUT:
        return StandardOutput()
    if output is not None:
        return _file(output)
    if device_available() is None:
        return Loudspeaker()
    return Nowhere() if otherwise is None else _file(otherwise)


def _file(path: str) -> Sink:
    check_file(path, tuple(FORMATS))
    format = FORMATS[Path(path).suffix.lower()]
    return WavFile(path) if format == "wav" else CompressedFile(path, format)


@contextmanager
def _writing(path: str) -> Generator[None]:
    """Convert file errors, including FFmpeg's, to a SinkError of one sentence."""
    try:
        yield
    except OSError as error:
        step = "; free some space, or use another path" if error.errno == errno.ENOSPC else ""
        raise SinkError(f"cannot write {path}: {error.strerror or error}{step}") from None


class WavFile:
    """A mono 16-bit WAV file, written incrementally. Raises SinkError if it can't be written.

    Uses the standard library, because FFmpeg prints a traceback when the disk is full.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        with _writing(path):
            self._handle = Path(path).expanduser().open("wb")
        self._file = wave.open(self._handle, "wb")  # noqa: SIM115 - closed in ``close``
        self._file.setnchannels(1)
        self._file.setsampwidth(2)
        self._file.setframerate(SPEAKER_RATE_HZ)

    async def write(self, samples: Wave) -> None:
        with _writing(self.name):
            await asyncio.to_thread(self._file.writeframesraw, pcm16(samples))

    async def close(self) -> None:
        with _writing(self.name):
            try:
                await asyncio.to_thread(self._file.close)
            finally:
                await asyncio.to_thread(self._handle.close)


class CompressedFile:
    """An MP3, FLAC, Opus or AAC file, written incrementally. Raises SinkError if it can't be written."""

    def __init__(self, path: str, format: FileFormat) -> None:
        self.name = path
        with _writing(path):
            self._file = Path(path).expanduser().open("wb")
            self._encoder = file_encoder(self._file, format)

    async def write(self, samples: Wave) -> None:
        with _writing(self.name):
            await asyncio.to_thread(self._encoder.push, samples)

    async def close(self) -> None:
        with _writing(self.name):
            try:
                await asyncio.to_thread(self._encoder.end)
            finally:
                await asyncio.to_thread(self._file.close)


class StandardOutput:
    """Raw s16le mono samples on standard output, for a player that reads the pipe."""

    name = "standard output"

    async def write(self, samples: Wave) -> None:
        await asyncio.to_thread(self._write, pcm16(samples))

    async def close(self) -> None:
        """Do nothing: all data has been flushed."""

    def _write(self, data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            forget(sys.stdout)
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
            raise SinkError(f"cannot play audio: {error}; write a file with -o") from None

    async def write(self, samples: Wave) -> None:
        await asyncio.to_thread(self._stream.write, pcm16(samples))

    async def close(self) -> None:
        await asyncio.to_thread(self._stream.stop)
        self._stream.close()


class Nowhere:
    """Discards the audio: none is wanted, or it can't be played."""

    name = "nowhere"

    async def write(self, samples: Wave) -> None:
        """Discard the samples."""

    async def close(self) -> None:
        """Do nothing."""
