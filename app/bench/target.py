"""The measured server: this one, or any other with the OpenAI Realtime API."""

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
"""Maximum seconds of a recording that is played to a server."""


class BenchError(EngineError):
    """The server can't be measured."""

    code = "bench_failed"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, its credentials, and the speech to send."""

    url: str
    """``http(s)://`` or ``ws(s)://``, with the API's path if it is not ``/v1``."""
    model: str = "bench"
    key: str | None = None
    speech: Pcm | None = None
    """int16 [samples] at SPEAKER_RATE_HZ for the microphones; None uses the server's own speech."""


def target_of(url: str, model: str, key_file: str | None, recording: Path | None) -> Target:
    """Return the target of the command line. Raises EngineError or MediaError, which name the file."""
    keys = read_keys(key_file, "--key-file")
    return Target(url, model, keys[0].value if keys else None, None if recording is None else spoken(recording))


def spoken(recording: Path) -> Pcm:
    """Decode a recording for a microphone. Raises BenchError, which names the file."""
    try:
        pcm = decode_audio(recording.read_bytes(), LONGEST_S)
    except OSError as error:
        raise BenchError(f"cannot read {recording}: {error.strerror}") from None
    except MediaError as error:
        raise BenchError(f"{recording}: {error}") from None
    return voiced(resample(pcm, MIC_RATE_HZ, SPEAKER_RATE_HZ))


def voiced(pcm: Pcm) -> Pcm:
    """Return int16 [samples] from the first audible one to the last. Raises BenchError if there is none."""
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 330)  # −40 dBFS
    if not len(loud):
        raise BenchError("the recording contains no audible speech")
    return pcm[loud[0] : loud[-1] + 1]
