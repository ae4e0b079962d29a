"""The place where an answer's sound goes: a file, standard output, a loudspeaker, or nowhere.

Every sink takes float32 [samples] at SPEAKER_RATE_HZ and writes 16 bits. Calls that block run in a thread. Knows no
request.
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
"""The format of a sound file, by the suffix of its name."""


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


def device_available() -> str | None:
    """None if sound can be played on this machine; else why not, as one sentence."""
    try:
        sounddevice: Any = importlib.import_module("sounddevice")
        sounddevice.query_devices(kind="output")
    except ImportError:
        return f"the sounddevice package is not installed ({install_command('device')})"
    except OSError as error:
        return f"PortAudio cannot be loaded ({' '.join(str(error).split())})"
    except Exception as error:  # noqa: BLE001 - sounddevice raises its own PortAudioError, and ValueError for "no device"
        return f"there is no output device ({' '.join(str(error).split())})"
    return None


def check_output(output: str | None, otherwise: str | None = None) -> None:
    """See, before anything slow starts, that `open_sink` will find a place for the sound. Raises SinkError.

    What lies there already is not touched.
    """
    if output is None and otherwise is not None and device_available() is not None:
        output = otherwise
    if output is not None and output != STDOUT:
        check_file(output, tuple(FORMATS))


def check_file(path: str, suffixes: Sequence[str]) -> None:
    """See that a file of this name can be written. Raises SinkError."""
    file = Path(path).expanduser()
    if file.is_dir():
        raise SinkError(f"cannot write {path}: it is a folder; name a file in it")
    if file.suffix.lower() not in suffixes:
        known = ", ".join(suffix for suffix in suffixes if suffix)
        raise SinkError(f"cannot write {path}: the name of the file must end with one of {known}")
    if not file.parent.is_dir():
        raise SinkError(f"cannot write {path}: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        read_only = os.statvfs(file.parent).f_flag & os.ST_RDONLY
        why = "the disk is read-only" if read_only else "you have no permission to write there"
        raise SinkError(f"cannot write {path}: {why}; name a file elsewhere")


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
    """Report in one sentence what keeps a file from being written: FFmpeg's errors are OSErrors, too."""
    try:
        yield
    except OSError as error:
        step = "; free some space, or name a file elsewhere" if error.errno == errno.ENOSPC else ""
        raise SinkError(f"cannot write {path}: {error.strerror or error}{step}") from None


class WavFile:
    """A mono 16-bit WAV file, written as the sound comes. Raises SinkError if it cannot be.

    The standard library writes it: FFmpeg prints a traceback when the disk is full.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        with _writing(path):
            self._handle = Path(path).expanduser().open("wb")
        self._file = wave.open(self._handle, "wb")  # noqa: SIM115 - the sink is closed by the one that opened it
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
    """An MP3, FLAC, Opus or AAC file, written as the sound comes. Raises SinkError if it cannot be."""

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
