"""Recordings of people whose voices are to be cloned: who they are, that they agreed, and their sound.

Knows no voice and no library of one.
"""

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
"""The shortest and the longest recording: the voices were trained with some five to thirty seconds."""
SILENCE = 0.01
"""A recording is silent if no sample is above this: 40 dB below the loudest that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A voice that is made from a recording, as an entry of a stage's ``options.clones``."""

    name: str
    """The name that requests use."""
    reference: str
    """A file of this machine: WAV, FLAC, Ogg or MP3."""
    consent: str
    """The speaker's consent: who agreed, when, and to what. It is for the people who read the configuration later."""
    text: str = ""
    """The words that are said in the recording, for voices that need them."""


def check_clones(clones: Sequence[Clone], names: Sequence[str]) -> None:
    """Raises ConfigError for a clone without consent, without a file of this machine, or of a name that is taken."""
    for i, clone in enumerate(clones):
        where = f"options.clones[{i}]"
        if not clone.name.strip() or clone.name in [*names, *(one.name for one in clones[:i])]:
            raise ConfigError(f"{where}.name: {clone.name!r:.80} is empty, or the name of another voice")
        if not clone.consent.strip():
            raise ConfigError(f"{where}.consent: say in a sentence how the speaker agreed to be cloned")
        if "://" in clone.reference:
            raise ConfigError(f"{where}.reference: {clone.reference!r:.80} is a URL: name a local file")


def reference_sound(clone: Clone, rate_hz: int) -> Wave:
    """A clone's recording, mono at ``rate_hz``. Raises ConfigError where no voice can be made of it."""
    path = Path(clone.reference)
    try:
        with soundfile.SoundFile(path) as file:
            own_hz, length_s = file.samplerate, file.frames / file.samplerate
            wave = file.read(round((MOST_S + 1) * own_hz), dtype="float32", always_2d=True).mean(axis=1)
    except (OSError, RuntimeError) as error:
        what = "the file does not exist" if not path.exists() else "it is not a readable audio file"
        raise ConfigError(f"The reference {path} of the voice {clone.name}: {what}.") from error
    if reason := _unfit(wave, length_s):
        raise ConfigError(f"The reference {path} of the voice {clone.name} {reason}.")
    return resample(np.ascontiguousarray(wave), own_hz, rate_hz)


def _unfit(wave: Wave, length_s: float) -> str:
    """Explain why no voice can be made of a recording; empty where one can."""
    if not LEAST_S <= length_s <= MOST_S:
        return f"is {length_s:.1f} s long; cut it to {LEAST_S:.0f} to {MOST_S:.0f} s of one person who speaks"
    if not np.isfinite(wave).all():
        return "has samples that are not finite numbers; save it again as 16-bit WAV"
    if np.abs(wave).max() < SILENCE:
        return "is silent; record the speaker louder"
    return ""
