"""The server that is measured: this one, or any other that speaks the OpenAI Realtime API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.access.api_keys import read_keys
from app.media.audio import MediaError, decode_audio
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, EngineError
from engine.audio.resampler import resample
from engine.core import Pcm

LONGEST_S = 30.0
"""Seconds of the longest recording that is played to a server: a turn of the bench, not a lecture."""


class BenchError(EngineError):
    """The server cannot be measured."""

    code = "bench_failed"


@dataclass(frozen=True, slots=True)
class Target:
    """The server, how to reach it, and what to say."""

    url: str
    """``http(s)://`` or ``ws(s)://``, with the API's path where that is not ``/v1``."""
    model: str = "bench"
    key: str | None = None
    speech: Pcm | None = None
    """int16 [samples] at SPEAKER_RATE_HZ for its microphones; None: what the server itself says."""


def target_of(url: str, model: str, key_file: str | None, recording: Path | None) -> Target:
    """Return the target that the command line names. Raises EngineError or MediaError, which name the file."""
    keys = read_keys(key_file, "--key-file")
    return Target(url, model, keys[0].value if keys else None, None if recording is None else spoken(recording))


def spoken(recording: Path) -> Pcm:
    """A recording as it is said to a server. Raises BenchError, which names the file."""
    try:
        pcm = decode_audio(recording.read_bytes(), LONGEST_S)
    except OSError as error:
        raise BenchError(f"cannot read {recording}: {error.strerror}") from None
    except MediaError as error:
        raise BenchError(f"{recording}: {error}") from None
    return voiced(resample(pcm, MIC_RATE_HZ, SPEAKER_RATE_HZ))


def voiced(pcm: Pcm) -> Pcm:
    """int16 [samples] from the first that can be heard to the last. Raises BenchError if there is none."""
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 330)  # −40 dBFS
    if not len(loud):
        raise BenchError("there is nothing to be heard in what is to be said to the server")
    return pcm[loud[0] : loud[-1] + 1]
