"""Extracts one speaker's utterance from the microphone audio: the voice, with little silence around it.

Silence before, between and after the words is dropped as it arrives, so that it affects neither the cepstral mean nor
the noise estimate, and the decoder finds no words in it. A voice is detected by level alone, relative to the loudest so
far. Softer sounds before it, such as a breath, are removed once the voice gets much louder. In what remains of a long
pause, noise is reduced to the level beneath the words.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm
from engine.worker.models.nano.hush import QUANTILE

FRAME = MIC_RATE_HZ // 50  # 20 ms, the unit of the level measurement
LONGEST = 30 * MIC_RATE_HZ  # samples; no request is longer
QUIET = 60.0  # minimum level of a voice (root mean square of int16)
HISS = 4.0  # noise added to every sample, because digital silence has no cepstrum
OVER_NOISE = 1.5  # a voice is at least 3.5 dB above the noise
ENOUGH = 25  # minimum frames to estimate the noise
SOFTEST = 20.0  # a voice ends 26 dB below its loudest part
CLEAR = 8.0  # each word has a part within 18 dB of the loudest
LASTS = 3  # minimum consecutive frames of a voice; a click is shorter
BEFORE, AFTER = 15, 25  # frames kept around clear speech, for soft word edges
AHEAD = 5  # frames of silence inserted before a voice that starts at the first sample (push-to-talk)
# Without them, the search mishears the first word.
GAP_BEFORE, GAP_AFTER = 5, 10  # maximum frames kept before and after the words around a long pause
GAP = 3  # minimum frames kept there
WORTH = 25  # minimum frames whose removal is worth a new search
FIRST = MIC_RATE_HZ // 2  # samples of voice needed for the first mean
GROWTH = 2.0  # growth of the voice after which the search restarts with a new mean
# Below NOISY_DB, a mean of the whole utterance is worth a restart once the user may have finished.
NOISY_DB = 25.0
NOISY_GROWTH = 1.1
PAUSE = MIC_RATE_HZ * 80 // 1000  # silence after which the user may have finished
MEAN_REACH = MIC_RATE_HZ * 28 // 10  # from 3 s on, pocketsphinx updates the mean itself

_HISS = np.random.default_rng(0).normal(0, HISS, LONGEST + FRAME).astype(np.int32)


class NanoUtterance:
    """One turn as it arrives. Positions count kept samples. The result does not depend on how the audio is cut."""

    def __init__(self) -> None:
        self.voice_end = 0
        """Sample at which the voice was last heard."""
        self.basis = 0
        """Sample at which the voice ended at the last restart; 0 if there is nothing to search yet."""
        self.stale = False
        """Whether the search must restart from the first sample, because much was added or some was removed."""
        self.known = 0
        """Samples that were kept when it last became stale: the restart uses no more, however late it comes."""
        self._frames: list[Pcm] = []
        self._levels: list[float] = []  # root mean square of every kept frame
        self._ranked: list[float] = []  # the same, sorted
        silence = [(np.zeros(FRAME, np.int16), HISS)] * AHEAD
        self._recent: deque[tuple[Pcm, float]] = deque(silence, BEFORE + LASTS)  # kept once a voice begins
        self._rest: Pcm = np.empty(0, np.int16)  # incomplete frame
        self._last = deque([0.0] * LASTS, LASTS)  # levels of the latest frames
        self._loudest = 0.0  # highest sustained level
        self._clear = 0  # consecutive frames of clear voice up to now
        self._behind = AFTER + 1  # frames since the last clear voice
        self._apart = 0  # frames kept before the last long pause
        self._between = 0.0  # noise level in the middle of the current pause
        self._forgotten = 0.0  # level of audio that exceeded LONGEST and was dropped

    def __len__(self) -> int:
        return (len(self._frames) - 1) * FRAME + len(self._frames[-1]) if self._frames else 0

    @property
    def too_long(self) -> bool:
        """Whether there is more speech than any request has."""
        return self._forgotten > self._loudest / CLEAR

    @property
    def clear_db(self) -> float:
        """Level of the voice above the noise, in dB."""
        return 20 * math.log10(max(self._quantile(0.9), 1.0) / max(self._floor, 1.0))

    def pcm(self, start: int = 0, end: int | None = None) -> Pcm:
        """Return the kept samples as int16."""
        end = len(self) if end is None else min(end, len(self))
        first = start // FRAME
        frames = self._frames[first : -(-end // FRAME)]
        kept = np.concatenate([np.empty(0, np.int16), *frames])[start - first * FRAME : end - first * FRAME]
        return np.clip(kept + _HISS[start:end], -32768, 32767).astype(np.int16)

    def push(self, pcm: Pcm) -> None:
        """Add int16 [n] samples."""
        fresh = np.concatenate([self._rest, pcm])
        whole = len(fresh) // FRAME * FRAME
        self._rest = fresh[whole:].copy()
        frames = fresh[:whole].reshape(-1, FRAME)
        for frame, level in zip(frames, _levels(frames), strict=True):
            self._hear(frame.copy(), float(level))

    def end(self) -> None:
        """Mark the end of the audio. May be called twice."""
        rest = self._rest
        self._rest = self._rest[:0]
        if self._behind <= AFTER and len(rest):
            self._keep(rest, float(_levels(rest[None])[0]))
        if self.voice_end and not self.basis and not self.too_long:  # too short to have a mean so far
            self._restart()

    @property
    def _floor(self) -> float:
        """Noise level beneath the voice; 0 until there is enough audio."""
        return self._quantile(QUANTILE) if len(self._ranked) >= ENOUGH else 0.0

    @property
    def _clear_level(self) -> float:
        """Level above which a sound belongs to a word."""
        return max(self._loudest / CLEAR if self._loudest > QUIET else QUIET, self._floor * OVER_NOISE)

    @property
    def _voice_level(self) -> float:
        """Level below which a sound is neither voice nor its fading end."""
        return max(QUIET, self._loudest / SOFTEST, self._floor * OVER_NOISE)

    def _quantile(self, share: float) -> float:
        return self._ranked[int(share * (len(self._ranked) - 1))] if self._ranked else 1.0

    def _hear(self, frame: Pcm, level: float) -> None:
        self._last.append(level)
        if (lasting := min(self._last)) > self._loudest:
            self._loudest = lasting
            self._leave_out_what_is_softer()
        self._clear = self._clear + 1 if level > self._clear_level else 0
        if len(self._recent) == self._recent.maxlen:
            self._between = max(self._between, self._recent[0][1])
        self._recent.append((frame, level))
        if self._clear >= LASTS:
            if self._behind > AFTER:
                self._resume()
            self._behind = 0
            self._between = 0.0
        else:
            self._behind += 1
        if self._behind <= AFTER:
            while self._recent:
                self._keep(*self._recent.popleft())
        if self._outgrown:
            self._restart()

    def _restart(self) -> None:
        self.basis = self.voice_end
        self.known = len(self)
        self.stale = True

    @property
    def _outgrown(self) -> bool:
        """Whether much more speech has arrived than the mean was computed from."""
        pause = self._behind > AFTER or len(self) - self.voice_end >= PAUSE
        growth = NOISY_GROWTH if pause and self.clear_db < NOISY_DB else GROWTH
        enough = self.basis * growth if self.basis or pause else FIRST
        return self.voice_end > enough and self.basis < MEAN_REACH and not self.too_long

    def _resume(self) -> None:
        """Handle a voice that begins, or continues after a long pause."""
        if len(self._frames) > AFTER:
            self._draw_together()
        else:  # the sound kept so far is too soft to be a voice
            self._leave_out(np.zeros(len(self._frames), bool))

    def _draw_together(self) -> None:
        """Shorten a long pause before the voice that continues.

        Only the ends of the pause stay, with their noise reduced to the level beneath the words. Otherwise the search
        would take the noise for a part of a word.
        """
        pause = [*zip(self._frames[-AFTER:], self._levels[-AFTER:], strict=True), *self._recent]
        begins = len(pause) - LASTS - GAP_BEFORE  # where the next word may begin
        noise = max([self._between, *(level for _, level in pause[GAP_AFTER:begins])])
        louder = np.array([level > noise * OVER_NOISE for _, level in pause])
        kept = np.convolve(louder, np.ones(2 * GAP + 1), "same") > 0
        kept[:GAP] = kept[-LASTS - GAP :] = True
        kept[GAP_AFTER:begins] = False
        self._leave_out(np.arange(len(self._frames)) < len(self._frames) - AFTER)
        self._apart = len(self._frames)
        quieter = self._quieter([pause[n] for n in np.flatnonzero(kept)], louder[kept])
        self._recent = deque(quieter, self._recent.maxlen)

    def _quieter(self, pause: list[tuple[Pcm, float]], louder: NDArray[np.bool_]) -> Iterator[tuple[Pcm, float]]:
        """Return the frames and their levels, with frames outside of words reduced to the level beneath the words."""
        beneath = self._quantile(QUANTILE)
        gains = [1.0 if loud else min(1.0, beneath / level) for (_, level), loud in zip(pause, louder, strict=True)]
        middles = (np.arange(len(pause)) + 0.5) * FRAME
        fade = np.interp(np.arange(len(pause) * FRAME), middles, gains).reshape(-1, FRAME)
        frames = np.rint(np.stack([frame for frame, _ in pause]) * fade).astype(np.int16)
        return zip(frames, _levels(frames).tolist(), strict=True)

    def _keep(self, frame: Pcm, level: float) -> None:
        self._frames.append(frame)
        self._levels.append(level)
        insort(self._ranked, level)
        if level > self._voice_level:
            self.voice_end = len(self)
        if len(self) > LONGEST:
            self._forgotten = max(self._forgotten, self._loudest)
            self._leave_out(np.arange(len(self._frames)) >= len(self._frames) // 2)

    def _leave_out_what_is_softer(self) -> None:
        """Remove kept sounds that are too soft to be a voice, now that a louder one has been heard."""
        if len(self._levels) < WORTH and not self._apart:
            return
        clear = np.array(self._levels) > self._clear_level
        lasts = np.convolve(clear, np.ones(LASTS))[LASTS - 1 : len(clear)] >= LASTS
        words = np.convolve(lasts, np.ones(LASTS)) > 0
        near = np.convolve(words, np.ones(BEFORE + 1 + AFTER))[BEFORE : BEFORE + len(words)] > 0
        near[-BEFORE:] = True  # a word is being spoken now
        if lone := self._apart > 0 and not words[: self._apart].any():
            near[: self._apart] = False  # too soft for a word before a long pause
        if lone or np.count_nonzero(~near) >= WORTH:
            self._leave_out(near)

    def _leave_out(self, kept: NDArray[np.bool_]) -> None:
        self._apart = int(np.count_nonzero(kept[: self._apart]))
        self._frames = [frame for frame, keep in zip(self._frames, kept, strict=True) if keep]
        self._levels = [level for level, keep in zip(self._levels, kept, strict=True) if keep]
        self._ranked = sorted(self._levels)
        voiced = np.flatnonzero(np.array(self._levels) > self._voice_level)
        self.voice_end = (int(voiced[-1]) + 1) * FRAME if len(voiced) else 0
        self.basis = 0
        self.stale = False


def _levels(frames: NDArray[np.int16]) -> NDArray[np.floating]:
    """Return the root mean square of each frame [n, samples], including the added noise."""
    return np.sqrt(np.square(frames.astype(np.float32)).mean(1) + HISS**2)
