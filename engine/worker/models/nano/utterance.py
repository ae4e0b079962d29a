"""One speaker's utterance, out of all that a microphone gave: the voice, with a little of what lies around it.

Silence before, between and behind the words is left out as it comes, however much of it there is, so that the ears take
no mean, no noise and no word from it. A voice is recognised by its level alone, against the loudest so far. What was
taken for a voice before somebody spoke much louder, such as a breath, is left out afterwards. In the rest of a long
pause a noise is no louder than beneath the words. Knows no word and no decoder.
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

FRAME = MIC_RATE_HZ // 50  # loudness is judged every 20 ms
LONGEST = 30 * MIC_RATE_HZ  # samples; no request is longer
QUIET = 60.0  # no voice is softer (root mean square of int16)
HISS = 4.0  # is added to every sample: digital silence has no cepstrum
OVER_NOISE = 1.5  # a voice is 3.5 dB louder than the noise beneath it
ENOUGH = 25  # frames before the noise beneath is known
SOFTEST = 20.0  # a voice ends where it falls 26 dB beneath its loudest
CLEAR = 8.0  # each word has something within 18 dB of the loudest
LASTS = 3  # frames in a row: a click is shorter
BEFORE, AFTER = 15, 25  # frames that are kept around clear sound: words begin and end softly
AHEAD = 5  # frames of silence ahead of a voice that is there from the first sample, as where a key is held: the search
# mishears the first word of a request that begins without any
GAP_BEFORE, GAP_AFTER = 5, 10  # the same in a long pause between words, at most:
GAP = 3  # so many where nothing there is louder than the rest of the pause
WORTH = 25  # frames: to leave out fewer afterwards is not worth another search
FIRST = MIC_RATE_HZ // 2  # the voice must reach so far for a first mean
GROWTH = 2.0  # the search starts over when the voice has grown by this since the mean was taken
NOISY_DB = 25.0  # where the voice is less far above the noise, a mean of all that was said is worth another search:
NOISY_GROWTH = 1.1  # once the user may have finished; else that search would only come between them and the answer
PAUSE = MIC_RATE_HZ * 80 // 1000  # quiet for so long, the user may have finished
MEAN_REACH = MIC_RATE_HZ * 28 // 10  # from 3 s on pocketsphinx itself moves the mean

_HISS = np.random.default_rng(0).normal(0, HISS, LONGEST + FRAME).astype(np.int32)


class NanoUtterance:
    """One turn as it comes. Positions count the samples that are kept; how the pieces were cut changes nothing."""

    def __init__(self) -> None:
        self.voice_end = 0
        """The sample where the voice was last heard."""
        self.basis = 0
        """The sample where it ended when a search was last to start over; 0: there is nothing to search yet."""
        self.stale = False
        """Whether a search is to start over from the first sample: much was added since, or something left out."""
        self._frames: list[Pcm] = []
        self._levels: list[float] = []  # root mean square of every frame that is kept
        self._ranked: list[float] = []  # the same, the softest first
        silence = [(np.zeros(FRAME, np.int16), HISS)] * AHEAD
        self._recent: deque[tuple[Pcm, float]] = deque(silence, BEFORE + LASTS)  # kept once a voice turns out to begin
        self._rest: Pcm = np.empty(0, np.int16)  # less than a frame
        self._last = deque([0.0] * LASTS, LASTS)  # levels of the latest frames
        self._loudest = 0.0  # level that lasted
        self._clear = 0  # frames in a row, up to now, that are clearly a voice
        self._behind = AFTER + 1  # frames since the last of these
        self._apart = 0  # frames kept ahead of the last long pause
        self._between = 0.0  # the level of the noise in this pause, in frames that are in neither end of it
        self._forgotten = 0.0  # the level of the noise more than LONGEST ago

    def __len__(self) -> int:
        return (len(self._frames) - 1) * FRAME + len(self._frames[-1]) if self._frames else 0

    @property
    def too_long(self) -> bool:
        """Whether there is more speech than in any request."""
        return self._forgotten > self._loudest / CLEAR

    @property
    def clear_db(self) -> float:
        """Return how far the voice is above what lies beneath it."""
        return 20 * math.log10(max(self._quantile(0.9), 1.0) / max(self._floor, 1.0))

    def pcm(self, start: int = 0, end: int | None = None) -> Pcm:
        """int16: the samples that are kept."""
        end = len(self) if end is None else min(end, len(self))
        first = start // FRAME
        frames = self._frames[first : -(-end // FRAME)]
        kept = np.concatenate([np.empty(0, np.int16), *frames])[start - first * FRAME : end - first * FRAME]
        return np.clip(kept + _HISS[start:end], -32768, 32767).astype(np.int16)

    def push(self, pcm: Pcm) -> None:
        """Hear int16 [n]."""
        fresh = np.concatenate([self._rest, pcm])
        whole = len(fresh) // FRAME * FRAME
        self._rest = fresh[whole:].copy()
        frames = fresh[:whole].reshape(-1, FRAME)
        for frame, level in zip(frames, _levels(frames), strict=True):
            self._hear(frame.copy(), float(level))

    def end(self) -> None:
        """Nothing follows. May be called twice."""
        rest = self._rest
        self._rest = self._rest[:0]
        if self._behind <= AFTER and len(rest):
            self._keep(rest, float(_levels(rest[None])[0]))
        if self.voice_end and not self.basis and not self.too_long:  # so short that no mean was taken yet
            self.basis = self.voice_end
            self.stale = True

    @property
    def _floor(self) -> float:
        """Return how loud it is beneath the voice; 0 until there is enough to tell."""
        return self._quantile(QUANTILE) if len(self._ranked) >= ENOUGH else 0.0

    @property
    def _clear_level(self) -> float:
        """Return the level above which sound belongs to a word."""
        return max(self._loudest / CLEAR if self._loudest > QUIET else QUIET, self._floor * OVER_NOISE)

    @property
    def _voice_level(self) -> float:
        """Return the level below which sound is not the voice, or its last sound."""
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
            self.basis = self.voice_end
            self.stale = True

    @property
    def _outgrown(self) -> bool:
        """Whether much more has been heard than the mean was taken from."""
        pause = self._behind > AFTER or len(self) - self.voice_end >= PAUSE
        growth = NOISY_GROWTH if pause and self.clear_db < NOISY_DB else GROWTH
        enough = self.basis * growth if self.basis or pause else FIRST
        return self.voice_end > enough and self.basis < MEAN_REACH and not self.too_long

    def _resume(self) -> None:
        """A voice begins, or goes on after a long pause."""
        if len(self._frames) > AFTER:
            self._draw_together()
        else:  # the kept sound was no voice beside this one
            self._leave_out(np.zeros(len(self._frames), bool))

    def _draw_together(self) -> None:
        """The voice goes on after a long pause. Only the ends of the pause stay, and no noise is left in them that is
        louder than what lies beneath the words: the search takes such noise for a part of a word.
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
        """The frames and their levels, those that are no word's turned down to what lies beneath the words."""
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
        """The loudest is louder than it was: what was kept need not be a voice beside it."""
        if len(self._levels) < WORTH and not self._apart:
            return
        clear = np.array(self._levels) > self._clear_level
        lasts = np.convolve(clear, np.ones(LASTS))[LASTS - 1 : len(clear)] >= LASTS
        words = np.convolve(lasts, np.ones(LASTS)) > 0
        near = np.convolve(words, np.ones(BEFORE + 1 + AFTER))[BEFORE : BEFORE + len(words)] > 0
        near[-BEFORE:] = True  # a word is being said now
        if lone := self._apart > 0 and not words[: self._apart].any():
            near[: self._apart] = False  # however little it is: no word begins so softly, a long pause ahead of itself
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
    """Root mean square of each frame [n, samples], with the hiss that is added to it."""
    return np.sqrt(np.square(frames.astype(np.float32)).mean(1) + HISS**2)
