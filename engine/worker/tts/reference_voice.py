"""Reference recordings for voice cloning: names, consent and audio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from engine.audio.resampler import resample
from engine.core import Wave
from engine.errors import ConfigError

LEAST_S, MOST_S = 3.0, 30.0
"""Minimum and maximum length of a recording in seconds. The models were trained on about 5 to 30 s."""
SILENCE = 0.01
"""A recording is silent if no sample exceeds this amplitude: 40 dB below full scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A voice that is cloned from a recording: one entry of a stage's ``options.clones``."""

    name: str
    """Name that requests use."""
    reference: str
    """Path of a local WAV, FLAC, Ogg or MP3 file."""
    consent: str
    """The speaker's consent: who agreed, when, and to what. It documents the consent for readers of the
    configuration.
    """
    text: str = ""
    """Transcript of the recording, for voices that need it."""


def check_clones(clones: Sequence[Clone], names: Sequence[str]) -> None:
    """Raise ConfigError for a clone without consent, with a URL instead of a file, or with an empty or taken name."""
    for i, clone in enumerate(clones):
        where = f"options.clones[{i}]"
        if not clone.name.strip() or clone.name in [*names, *(one.name for one in clones[:i])]:
            raise ConfigError(f"{where}.name: {clone.name!r:.80} is empty or the name of another voice")
        if not clone.consent.strip():
            raise ConfigError(f"{where}.consent: describe in a sentence how the speaker consented to the cloning")
        if "://" in clone.reference:
            raise ConfigError(f"{where}.reference: {clone.reference!r:.80} is a URL; name a local file")


def reference_sound(clone: Clone, rate_hz: int) -> Wave:
    """Load a clone's recording, mono at ``rate_hz``. Raises ConfigError if it is unsuitable."""
    path = Path(clone.reference)
    try:
        with soundfile.SoundFile(path) as file:
            own_hz, length_s = file.samplerate, file.frames / file.samplerate
            wave = file.read(round((MOST_S + 1) * own_hz), dtype="float32", always_2d=True).mean(axis=1)
    except (OSError, RuntimeError) as error:
        what = "the file does not exist" if not path.exists() else "it is not a readable audio file"
        raise ConfigError(f"The reference {path} for the voice {clone.name} cannot be used: {what}.") from error
    if reason := _unfit(wave, length_s):
        raise ConfigError(f"The reference {path} for the voice {clone.name} {reason}.")
    return resample(np.ascontiguousarray(wave), own_hz, rate_hz)


def _unfit(wave: Wave, length_s: float) -> str:
    """Return why a recording is unsuitable, or "" if it is suitable."""
    if not LEAST_S <= length_s <= MOST_S:
        return f"is {length_s:.1f} s long; cut it to {LEAST_S:.0f} to {MOST_S:.0f} s of one person speaking"
    if not np.isfinite(wave).all():
        return "has samples that are not finite numbers; save it again as 16-bit WAV"
    if np.abs(wave).max() < SILENCE:
        return "is silent; record the speaker louder"
    return ""
