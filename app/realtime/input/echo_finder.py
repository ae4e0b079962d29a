"""Finds the playback in the microphone's signal: whether its echo is there, how late and how loud.

Whitened signals are compared, so that the spectra of speech and of the loudspeaker do not matter: the correlation has
one sharp peak at the delay of the direct sound, and none if there is no echo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm

WINDOW = 8192
"""Samples of the microphone that are compared: 512 ms."""

REACH = 16384
"""Samples by which an echo can be late: a second."""

CLEAR = 0.3
"""Correlation above which the echo is there: voices, music and babble reach 0.17."""

_SIZE = WINDOW + REACH
_BAND = slice(*(round(hz * _SIZE / MIC_RATE_HZ) for hz in (300, 3500)))  # what small loudspeakers transmit
_ENERGY = 2 * (_BAND.stop - _BAND.start) / _SIZE  # of a whitened signal that has every frequency
_FAINT = 0.1  # part of the playback's mean power below which a stretch of it is too quiet to compare
_TAPER = np.hanning(WINDOW)  # of the microphone: otherwise the cut ends of unrelated signals match
_NOISE = 3e-3  # part of the largest magnitude below which a frequency carries nothing: otherwise tones match
_SILENT = 20.0  # level of int16 samples below which a signal is silence
_FRAME = 256
_SHORT = WINDOW // _FRAME // 4  # frames of sound that a comparison needs: shorter sounds match by chance


@dataclass(frozen=True, slots=True)
class Echo:
    """The echo in one window of the microphone."""

    delay: float
    """Samples by which it is later than the playback, to a part of a sample."""
    gain_db: float
    """Level of the microphone's signal relative to the playback."""


def find_echo(microphone: Pcm, playback: Pcm) -> Echo | None:
    """Return the echo of ``playback`` in int16 [WINDOW] of the microphone; None if it is not there.

    ``playback`` is int16 [REACH + WINDOW] and ends at the same time.
    """
    if _sounding(microphone) < _SHORT or _sounding(playback) < _SHORT:
        return None
    heard, played = _whitened(microphone * _TAPER), _whitened(playback)
    products = np.fft.irfft(heard * np.conj(played), _SIZE)
    energy = np.concatenate([[0.0], np.cumsum(np.square(np.fft.irfft(played, _SIZE)))])
    energies = np.maximum(energy[WINDOW:] - energy[:-WINDOW], _FAINT * energy[-1] * WINDOW / _SIZE)
    # Index i: the window of the playback that begins at sample i, which was REACH - i samples earlier.
    shares = products[-np.arange(REACH + 1)] / np.sqrt(energies * _ENERGY)
    at = int(np.argmax(shares))
    played_level = _level(playback[at : at + WINDOW])
    if shares[at] < CLEAR or played_level < _SILENT:
        return None
    return Echo(
        REACH - at - _peak(shares[max(0, at - 1) : at + 2]), float(20 * np.log10(_level(microphone) / played_level))
    )


def _peak(values: NDArray[np.float64]) -> float:
    """Return where the parabola through three values is highest, relative to the middle one; 0 for fewer values."""
    if len(values) < 3:
        return 0.0
    before, middle, after = values
    return float((after - before) / (4 * middle - 2 * before - 2 * after))


def _whitened(pcm: NDArray[Any]) -> NDArray[np.complex128]:
    """Return the spectrum within the band, with the magnitude 1 wherever there is more than noise."""
    spectrum: NDArray[Any] = np.fft.rfft(pcm, _SIZE)
    magnitude = np.abs(spectrum[_BAND])
    whitened = np.zeros_like(spectrum)
    whitened[_BAND] = spectrum[_BAND] / np.maximum(magnitude, _NOISE * magnitude.max() + 1e-9)
    return whitened


def _sounding(pcm: Pcm) -> int:
    """Return how many frames of it are no silence."""
    power = np.square(pcm.reshape(-1, _FRAME), dtype=np.float64).mean(axis=1)
    return int((power >= _SILENT**2).sum())


def _level(pcm: Pcm) -> float:
    return float(np.sqrt(np.square(pcm, dtype=np.float64).mean()))
