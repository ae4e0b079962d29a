"""CosyVoice3, from the language model to the flow: speech tokens, and the voice that they are to be spoken in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk
from engine.errors import ConfigError, StageFailed
from engine.worker.transitions.accumulator import Accumulator, Ids
from engine.worker.transitions.transition import FullPayload, step_of
from engine.worker.transitions.windows import ALL, PayloadWindow, Windows

BOOK = 6_561  # ids from here on end the speech
MEL_FRAMES, MELS = 2, 80  # of a token


class CosyVoiceVoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cosyvoice3.voice"):
    """A voice: the tokens of its sample [1, T], the sample's mel [1, 2T, 80], and the speaker's embedding [1, 192]."""

    speech_token: NDArray[np.int64]
    speech_feat: NDArray[np.float32]
    embedding: NDArray[np.float32]

    def __post_init__(self) -> None:
        tokens, mel = self.speech_token.shape, self.speech_feat.shape
        if mel != (*tokens[:1], MEL_FRAMES * tokens[-1], MELS):
            raise StageFailed(f"a voice's tokens {list(tokens)} and mel {list(mel)} are not of one sample")


class CosyVoiceTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cosyvoice3.tokens"):
    """A step of the language model: the ids that it drew, int64 [n].

    The first step has what comes with the prompt: the voice, and the prompt's ids, which some histories of ids begin
    with. Of both the latest stands.
    """

    ids: Ids | None = None
    voice: CosyVoiceVoice | None = None
    prompt_ids: NDArray[np.int64] | None = None


class CosyVoiceSpeech(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cosyvoice3.speech"):
    """Tokens to be spoken, int64 [n], each below BOOK.

    The sound of the first ``offset`` tokens is to be cut from what the flow makes. The voice comes with the first
    payload and stays.
    """

    tokens: NDArray[np.int64]
    offset: int
    voice: CosyVoiceVoice | None
    finished: bool = True


def speech_of(steps: CosyVoiceTokens) -> CosyVoiceSpeech:
    """Return an answer as one payload. Raises StageFailed where no voice came.

    The ids of the prompt, and then those of the voice, are stripped where the answer begins with exactly them. The
    sound of the voice's sample is cut only where the speech came to its end: without one it was not spoken.
    """
    voice = _required(steps.voice)
    ids = _none() if steps.ids is None else steps.ids
    spoken = ids
    for prefix in (_none() if steps.prompt_ids is None else steps.prompt_ids, voice.speech_token.reshape(-1)):
        if len(prefix) and np.array_equal(spoken[: len(prefix)], prefix):
            spoken = spoken[len(prefix) :]
    return CosyVoiceSpeech(_sounding(spoken), voice.speech_token.size if (ids >= BOOK).any() else 0, voice)


def whole() -> FullPayload[CosyVoiceTokens, CosyVoiceSpeech]:
    return FullPayload(CosyVoiceTokens, speech_of)


class CosyVoiceStream:
    """The same while the speech is made: every payload has all of the tokens so far.

    The first window has ``chunk`` tokens and as many as the voice's sample lacks of a multiple of it; each later one is
    ``growth`` times as long as the one before, up to ``most``. The flow looks ``ahead`` tokens further.
    """

    def __init__(self, chunk: int = 25, most: int = 100, growth: int = 2, ahead: int = 3) -> None:
        if min(chunk, most, growth) < 1 or ahead < 0:
            raise ConfigError(f"CosyVoice3: windows of {chunk} tokens to {most}, times {growth}, {ahead} ahead")
        self._chunk = chunk
        self._most = max(chunk, most)
        self._growth = growth
        self._steps = Accumulator(CosyVoiceTokens)
        self._windows = Windows(_none(), self._size, ALL, ahead)
        self._given = False

    def add(self, chunk: Chunk) -> Iterable[CosyVoiceSpeech]:
        step = step_of(chunk, CosyVoiceTokens)
        self._steps.add(CosyVoiceTokens(voice=step.voice))
        windows = [] if step.ids is None else self._windows.add(_sounding(step.ids))
        return [self._speech(window) for window in windows]

    def end(self) -> CosyVoiceSpeech:
        return self._speech(self._windows.end())

    def _size(self, count: int) -> int:
        # A power of the growth is only asked for as long as it is below ``most``: it would have thousands of digits.
        size = min(self._most, self._chunk * self._growth ** min(count, self._most.bit_length()))
        return size if count else size + -self._voice.speech_token.shape[1] % self._chunk

    def _speech(self, window: PayloadWindow) -> CosyVoiceSpeech:
        voice = None if self._given else self._voice
        self._given = True
        return CosyVoiceSpeech(window.frames, window.context, voice, window.finished)

    @property
    def _voice(self) -> CosyVoiceVoice:
        return _required(self._steps.whole.voice)


def _required(voice: CosyVoiceVoice | None) -> CosyVoiceVoice:
    if voice is None:
        raise StageFailed("CosyVoice3 speaks in a voice that comes with the prompt, and none came")
    return voice


def _sounding(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return ids[(ids >= 0) & (ids < BOOK)]


def _none() -> NDArray[Any]:
    return np.zeros(0, np.int64)
