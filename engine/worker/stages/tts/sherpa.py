"""Voices of sherpa-onnx on the CPU, clause by clause, without torch.

Supported are Kokoro, Matcha, Kitten and VITS, and with cloned voices ZipVoice and Pocket. ``weights`` is a folder as
published by the project k2-fsa/sherpa-onnx; nothing is downloaded. The library (extra ``local``) computes one clause at
a time, in its own thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.core import StageInfo
from engine.deployment.config import ChunkSpec, build
from engine.english.clause import in_words
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.sherpa import sherpa_library
from engine.worker.libraries.stderr_filter import without_lines_of
from engine.worker.libraries.weights_folder import unloadable
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.tts.clause_voice import ClauseSpeaker, Piece, Saying
from engine.worker.tts.clauses import WORDS, on_one_line
from engine.worker.tts.number_words import number_words
from engine.worker.tts.reference_voice import Clone, check_clones, reference_sound
from engine.worker.tts.sherpa import SherpaVoice, sherpa_voice
from engine.worker.tts.sherpa_clones import STEPS
from engine.worker.tts.voices import voice_info

FIRST = 6
"""Words of the first clause, unless the voice is fast."""

STEADY = 16
"""Maximum words of a clause: a running call cannot be interrupted, and other requests wait for its end."""

FAST = 8.0
"""Seconds of speech per second of computation from which a voice is fast: 16 words take less than a second."""

LINES = b"sherpa-onnx/csrc/"
"""Marks the library's own log lines, which quote the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SherpaTtsOptions:
    """The ``options`` of the stage."""

    voice: str = ""
    """The default voice; empty: the first one."""
    language: str = ""
    """The language of the answers, as BCP 47, for a voice with several. Empty: English, or the voice's first one."""
    first_words: int | None = None
    """Words of an answer's first clause. Fewer give earlier first audio, but a slow voice cannot keep up afterwards.
    None: 6, or a whole phrase for a fast voice.
    """
    clones: tuple[Clone, ...] = ()
    """Voices that ZipVoice and Pocket clone from recordings. ZipVoice also needs the text of each recording."""


class SherpaTtsStage(ClauseSpeaker):
    """The stage: a whole clause per step.

    A voice that uses random noise repeats an interrupted clause a little differently on another replica. The join is
    audible.
    """

    whole = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = _options(config.options)
        voice = sherpa_voice(config.weights, options.language, options.clones)
        return voice_info(config, voice.voices, options.voice, voice.languages)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._options = _options(config.options)
        self._voice = sherpa_voice(config.weights, self._options.language, self._options.clones)
        self._references = [reference_sound(clone, self._voice.rate_hz) for clone in self._options.clones]
        self.rate_hz = self._voice.rate_hz
        first = self._options.first_words or FIRST
        self.words = ChunkSpec(first=first, growth=1.5, steady=max(STEADY, first))
        self._in_words = _speller(next(iter(self._voice.languages), ""), self._voice.family)
        self._pronounce = self._voice.pronounce
        self._library, self._tts = _loaded(self._voice, config.threads)

    def warm_up(self) -> None:
        """Allocate the library's memory, load the English number rules, and measure how fast speech is computed.

        Unless ``first_words`` is set, a voice of at least FAST gets longer first clauses.
        """
        for text in (self.wording("hello, 3 times"), "你好"):
            self._generate(text, 0, 1.0, lambda: False)
        if self._options.first_words is None and self._speed() >= FAST:
            self.phrases = True
            self.words = ChunkSpec(first=STEADY, growth=1.5, steady=WORDS.steady)

    def _speed(self) -> float:
        """Return the seconds of speech per second of computation."""
        began_s = time.perf_counter()
        pieces = self._generate(self.wording("hello, this is a test of the voice"), 0, 1.0, lambda: False)
        return sum(len(wave) for wave, _ in pieces) / self.rate_hz / (time.perf_counter() - began_s)

    def wording(self, text: str) -> str:
        return self._in_words(text)

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Return a minute for ten seconds of speech, plus 10 s for a busy machine."""
        return 10 + 0.4 * max((len(req.pending[0].text) for req in reqs if req.pending), default=0)

    def pieces(self, saying: Saying) -> Iterator[Piece]:
        return iter(self._generate(saying.text, self._voice.number(saying.voice), saying.speed, saying.left))

    def _generate(self, text: str, number: int, speed: float, left: Callable[[], bool]) -> list[Piece]:
        """Return the audio of a text, one piece per sentence.

        Once ``left()`` is true, synthesis stops after a sentence.
        """
        pieces: list[Piece] = []

        def take(wave: NDArray[np.float32], share: float) -> int:
            pieces.append((wave, share))
            return int(not left())

        with without_lines_of(LINES):
            made = self._tts.generate(text, self._wanted(text, number, speed), take)
        if not pieces and not left() and (samples := made.samples):  # Kitten reports no pieces
            pieces.append((np.array(samples, np.float32), 1.0))
        return pieces

    def _wanted(self, text: str, number: int, speed: float) -> Any:
        """Return the library's settings for a text: its phonemes if the voice takes them, the voice and the speed."""
        wanted = self._library.GenerationConfig()
        if self._pronounce is not None and text.isascii():
            wanted.phoneme_codepoints = [[*map(ord, self._pronounce(text))]]
        wanted.sid = number
        wanted.speed = speed
        if self._references:
            wanted.reference_audio = self._references[number]
            wanted.reference_sample_rate = self._voice.rate_hz
        if self._voice.family == "zipvoice":
            wanted.reference_text = on_one_line(self._options.clones[number].text)
            wanted.num_steps = STEPS
        return wanted


STAGE = SherpaTtsStage


def _options(mapping: Mapping[str, Any]) -> SherpaTtsOptions:
    options: SherpaTtsOptions = build(SherpaTtsOptions, dict(mapping), "options")
    if options.first_words is not None and not 1 <= options.first_words <= 100:
        raise ConfigError("options.first_words: must be 1 to 100")
    check_clones(options.clones, ())
    return options


def _speller(language: str, family: str) -> Callable[[str], str]:
    """Return the function that prepares a text: lexicons lack numbers and abbreviations, but Pocket needs neither."""
    if language.startswith("en"):
        return on_one_line if family == "pocket" else in_words
    spell = number_words(language)
    return on_one_line if spell is None else lambda text: spell(on_one_line(text))


def _loaded(voice: SherpaVoice, threads: int) -> tuple[Any, Any]:
    library = sherpa_library("tts.sherpa")
    with voice.published.for_library() if voice.published else nullcontext(voice.folder) as folder:
        config = voice.config(library, threads, folder)
        if not config.validate():
            raise WeightsError(f"sherpa-onnx cannot load the voice in {voice.folder}; the log says what is missing.")
        try:
            return library, library.OfflineTts(config)
        except RuntimeError as error:
            raise unloadable(str(voice.model), error) from error
