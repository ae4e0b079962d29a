"""Whisper with the library faster-whisper (CTranslate2), on a CPU or an NVIDIA GPU.

``weights`` is a folder in CTranslate2's format, as published by Systran; nothing is downloaded. A clip is decoded in a
window of its own length plus a pause, instead of Whisper's 30 s, which takes a fraction of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.core import MIC_RATE_HZ, NO_HINTS, Hint, Pcm, SpeechHints, StageInfo
from engine.worker.asr.faster_whisper import LONGEST_PROMPT, USE, whisper_folder, whisper_options
from engine.worker.asr.transcribing import ears_info, floats, language_codes
from engine.worker.asr.whole_clips import WholeClips
from engine.worker.asr.word_times import NOTHING, WordTimes
from engine.worker.libraries.installed import installed
from engine.worker.stage import StageConfig

PAUSE_S = 10
"""Minimum silence after a clip. With less, Whisper repeats itself: it was trained on windows of 30 s."""
WINDOW_STEP_S = 5
"""Windows are a multiple of this, so that users who speak at the same time share a batch."""
LONGEST_WINDOW_S = 30
HINTS: frozenset[Hint] = frozenset({"language", "prompt", "keywords"})
TOKENS_PER_S = 20
"""Upper bound for the tokens of speech in any language. English has about 4."""
CONTEXT = 448
"""The number of the decoder's positions."""
NO_SPEECH = 0.6
"""If the probability that a clip contains no speech is higher, only a likely text is kept.

Whisper base reports up to 0.3 for speech, and 0.5 to 0.97 for noise and music.
"""
LIKELY_LOGPROB = -0.4
"""Mean log probability of a token above which a text is likely."""
LEAST_LOGPROB = -1.0
"""Mean log probability of a token below which a text is dropped. Mostly correct texts have -0.5 or more."""


class FasterWhisperStage(WholeClips):
    """Whisper. Clips with windows of equal length are decoded in one batch, so users do not affect each other."""

    invents = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = whisper_options(config.options)
        known = whisper_folder(config.weights).languages
        language_codes(options.languages, known)
        return ears_info(config, options.languages or known, hints=HINTS)

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(config, clock)
        options = whisper_options(config.options)
        folder = whisper_folder(config.weights)
        self._languages = language_codes(options.languages, folder.languages) or folder.languages
        self._beam_size = options.beam_size
        self._model = folder.load(config, options)
        self._tokenizer_of = installed(USE, "faster_whisper.tokenizer", "faster-whisper", "whisper").Tokenizer
        self._prompt = options.prompt

    def transcribe(self, clips: Sequence[Pcm]) -> Sequence[WordTimes]:
        return self.transcribe_hinted(clips, [NO_HINTS] * len(clips))

    def transcribe_hinted(self, clips: Sequence[Pcm], hints: Sequence[SpeechHints]) -> Sequence[WordTimes]:
        batches: dict[tuple[int, str], list[int]] = {}
        for n, (clip, hint) in enumerate(zip(clips, hints, strict=True)):
            batches.setdefault((_window_s(clip), _prompt(self._prompt, hint)), []).append(n)
        results = [NOTHING] * len(clips)
        for (window_s, prompt), batch in sorted(batches.items()):
            languages = [self._candidates(hints[n]) for n in batch]
            words = self._decode([clips[n] for n in batch], window_s, prompt, languages)
            for n, result in zip(batch, words, strict=True):
                results[n] = result
        return results

    def _candidates(self, hint: SpeechHints) -> Sequence[str]:
        """Return the possible languages of a clip: the hinted ones that the stage knows, or else all."""
        codes = [language.partition("-")[0].lower() for language in hint.languages]
        return [code for code in codes if code in self._languages] or self._languages

    def _decode(
        self, clips: Sequence[Pcm], window_s: int, prompt: str, candidates: Sequence[Sequence[str]]
    ) -> list[WordTimes]:
        """Return the texts and languages of clips that are padded with silence to ``window_s``.

        ``candidates`` are the languages that each clip may be in. The library requires prompts of equal length.
        """
        waves = [np.pad(floats(clip), (0, window_s * MIC_RATE_HZ - len(clip))) for clip in clips]
        encoded = self._model.encode(np.stack([self._model.feature_extractor(wave, padding=0) for wave in waves]))
        languages = self._spoken_languages(encoded, candidates)
        tokenizers = [self._tokenizer(language) for language in languages]
        previous = tokenizers[0].encode(prompt)[-LONGEST_PROMPT:]
        prompts = [self._model.get_prompt(one, previous, without_timestamps=True) for one in tokenizers]
        most = min(10 + TOKENS_PER_S * max(map(len, clips)) // MIC_RATE_HZ, CONTEXT - len(prompts[0]))
        results = self._model.model.generate(
            encoded,
            prompts,
            beam_size=self._beam_size,
            max_length=len(prompts[0]) + most,
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [
            WordTimes(_text(result, tokenizer, most), language=language)
            for result, tokenizer, language in zip(results, tokenizers, languages, strict=True)
        ]

    def _spoken_languages(self, encoded: Any, candidates: Sequence[Sequence[str]]) -> list[str]:
        """Return the most likely language of each clip among its candidates."""
        if all(len(codes) == 1 for codes in candidates):
            return [codes[0] for codes in candidates]
        ranked = self._model.model.detect_language(encoded)
        return [
            next(code for token, _ in clip if (code := token.strip("<|>")) in codes)
            for clip, codes in zip(ranked, candidates, strict=True)
        ]

    def _tokenizer(self, language: str) -> Any:
        model = self._model
        return self._tokenizer_of(model.hf_tokenizer, model.model.is_multilingual, "transcribe", language)


STAGE = FasterWhisperStage


def _window_s(clip: Pcm) -> int:
    """Return the length of the window for a clip."""
    least_s = -(-len(clip) // MIC_RATE_HZ) + PAUSE_S
    return min(-(-least_s // WINDOW_STEP_S) * WINDOW_STEP_S, LONGEST_WINDOW_S)


def _prompt(configured: str, hint: SpeechHints) -> str:
    """Return the text before a clip: keywords first, because Whisper continues in the style of the last words."""
    parts = (", ".join(hint.keywords), configured.strip(), hint.prompt.strip())
    return "".join(f" {part}" for part in parts if part)


def _text(result: Any, tokenizer: Any, most: int) -> str:
    """Return the text of a result, or "" if it is unlikely, probably not speech, or cut off."""
    tokens = result.sequences_ids[0]
    mean_logprob = result.scores[0] * len(tokens) / (len(tokens) + 1)
    least = LIKELY_LOGPROB if result.no_speech_prob > NO_SPEECH else LEAST_LOGPROB
    return tokenizer.decode(tokens).strip() if mean_logprob >= least and len(tokens) < most else ""
