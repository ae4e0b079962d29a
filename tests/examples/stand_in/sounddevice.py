"""A stand-in for the package `sounddevice`: its microphone says a WAV file, is silent then, and says the next file once
there is one; its loudspeaker writes what is played to a file. ``PARLEY_TEST_SAID`` and ``PARLEY_TEST_PLAYED`` name both
files, and ``PARLEY_TEST_THEN`` the next one."""

from __future__ import annotations

import itertools
import os
import threading
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


class _Stream:
    def __init__(self, *, samplerate: int, channels: int, dtype: str, blocksize: int, callback: Callable[..., None]):
        assert (channels, dtype) == (1, "int16")
        self._bytes, self._period_s = 2 * blocksize, blocksize / samplerate
        self._callback, self._frames = callback, blocksize
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError

    def _over(self) -> bool:
        return self._ended.wait(self._period_s)


class RawInputStream(_Stream):
    """A microphone that says its files, and is silent otherwise."""

    def _run(self) -> None:
        said, then = _read(Path(os.environ["PARLEY_TEST_SAID"])), Path(os.environ.get("PARLEY_TEST_THEN", "none"))
        for at in itertools.count(0, self._bytes):
            if self._over():
                return
            if at >= len(said) and then.exists():
                said = said.ljust(at, b"\0") + _read(then)
                then = Path("none")
            self._callback(said[at : at + self._bytes].ljust(self._bytes, b"\0"), self._frames, None, None)


def _read(path: Path) -> bytes:
    with wave.open(str(path)) as file:
        return file.readframes(file.getnframes())


class RawOutputStream(_Stream):
    """A loudspeaker that writes what it plays."""

    def _run(self) -> None:
        with Path(os.environ["PARLEY_TEST_PLAYED"]).open("wb") as file:
            while not self._over():
                out: Any = bytearray(self._bytes)
                self._callback(memoryview(out), self._frames, None, None)
                file.write(out)
