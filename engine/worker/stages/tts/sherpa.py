"""Voices of sherpa-onnx, clause by clause: Kokoro, Matcha, Kitten, VITS, and, as recordings speak, ZipVoice and
Pocket: on the CPU and without torch.

``weights`` is a folder as the project k2-fsa/sherpa-onnx publishes them; nothing is ever fetched. The library (extra
``local``) computes one clause at a time, in a thread of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.chunk import Audio, Checkpoint, Chunk
from engine.config import ChunkSpec, build
from engine.core import SPEAKER_RATE_HZ, StageInfo
from engine.english.clause import in_words
from engine.errors import ConfigError, EngineError, WeightsError
from engine.worker.clause_sound import ClauseSound
from engine.worker.clauses import Clause, Resume, clauses, on_one_line
from engine.worker.quiet import without_lines_of
from engine.worker.reference import Clone, check_clones, reference_sound
from engine.worker.sherpa_clones import STEPS
from engine.worker.sherpa_library import sherpa_library
from engine.worker.sherpa_voice import SherpaVoice, sherpa_voice
from engine.worker.speaking import can_say, unsayable, voice_info
from engine.worker.stage import StageConfig, guarded
from engine.worker.stage_request import StageRequest
from engine.worker.weights_folder import unloadable

STEADY = 16
"""Words of a clause at most: a call that has begun is not interrupted, and others wait for its end."""

LINES = b"sherpa-onnx/csrc/"
"""The mark of the library's own lines, which quote what is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The ``options`` of the stage."""

    voice: str = ""
    """The voice where a request names none; empty: the first one."""
    language: str = ""
    """The language of the answers, as BCP 47, of a voice that speaks several; empty: English, or the voice's first."""
    first_words: int = 6
    """Words of an answer's first clause. Fewer give an earlier first sound, which a slow voice cannot follow up."""
    clones: tuple[Clone, ...] = ()
    """Voices that ZipVoice and Pocket make from recordings; ZipVoice wants to know the text that is spoken in each."""


@dataclass(slots=True)
class Speaking:
    """One answer on its way: who says it, how much of it has been said, and whether anything could be."""

    sound: ClauseSound
    number: int
    said: int = 0
    """Characters of the answer."""
    count: int = 0
    """Clauses."""
    sounded: bool = False
    lettered: bool = False
    """Whether there was anything but marks to say."""


class Speaker:
    """Text -> sound, a clause a step, for the request whose listener needs it most.

    On another replica it goes on at the clause that was on its way: that one is made anew, and left out as far as it
    was given. A voice that draws noise says it a little differently, which is heard at the join.
    """

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
        self._words = ChunkSpec(
            first=self._options.first_words, growth=1.5, steady=max(STEADY, self._options.first_words)
        )
        self._reads = self._voice.family == "pocket"  # text without a lexicon: it babbles unknown words
        english = self._voice.languages[:1] != () and self._voice.languages[0].startswith("en")
        self._english = english and not self._reads
        self._library, self._tts = _loaded(self._voice, config.threads)

    def warm_up(self) -> None:
        """Its memory, and the grammar of English numbers, are asked for before somebody waits for them."""
        for text in (in_words("hello, 3 times") if self._english else "hello", "你好"):
            self._generate(text, 0, 1.0, lambda: False)

    def open(self, req: StageRequest) -> None:
        left: Mapping[str, Any] = req.checkpoint or {}
        number = self._voice.number(req.request.voice, self._options.voice)
        most = round(req.request.max_audio_s * SPEAKER_RATE_HZ)
        sound = ClauseSound(self._voice.rate_hz, left.get("samples", 0), most)
        req.state = Speaking(sound, number, left.get("said", 0), left.get("count", 0), sounded=bool(left))

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Clause]:
        until = req.checkpoint["until"] if req.checkpoint else 0
        return clauses(req, inputs, self._words, Resume(req.state.said, req.state.count, until))

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """A minute for ten seconds of speech, and what a busy machine takes besides."""
        return 10 + 0.4 * max((len(req.pending[0].text) for req in reqs if req.pending), default=0)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [guarded(self, req, self._say) for req in reqs]

    def _say(self, req: StageRequest) -> list[Chunk]:
        speaking: Speaking = req.state
        if not req.pending:
            return self._end(req)
        clause: Clause = req.pending.popleft()
        state = {"samples": speaking.sound.samples, "said": speaking.said, "count": speaking.count, "until": clause.end}
        sound = self._sound(req, clause)
        speaking.said = clause.end
        speaking.count = speaking.count + 1
        speaking.sounded = speaking.sounded or bool(sound)
        speaking.lettered = speaking.lettered or clause.lettered
        req.done = speaking.sound.full
        return [Checkpoint(state), *sound] if sound else []

    def _end(self, req: StageRequest) -> list[Chunk]:
        if req.state.lettered and not req.state.sounded:
            raise unsayable(self._voice.languages)
        req.done = True
        return []

    def _sound(self, req: StageRequest, clause: Clause) -> list[Audio]:
        """A clause as sound; none of one that the voice has no word of."""
        sound = req.state.sound
        sound.begin(clause)
        text = in_words(clause.text) if self._english else on_one_line(clause.text)
        pieces = self._generate(text, req.state.number, req.request.speed, lambda: req.closed)
        return [audio for wave, share in pieces for audio in sound.push(wave, share)] + [*sound.end()]

    def _generate(self, text: str, number: int, speed: float, left: Any) -> list[tuple[NDArray[np.float32], float]]:
        """Yield the library's pieces of a text, a sentence each, and the share of it that has been said behind each.

        Once ``left`` says that nobody waits for it any more, it ends with the sentence.
        """
        pieces: list[tuple[NDArray[np.float32], float]] = []

        def take(wave: NDArray[np.float32], share: float) -> int:
            pieces.append((wave, share))
            return int(not left())

        if not any(map(str.isalnum, text)) or (self._reads and not can_say(text, self._voice.languages)):
            return pieces
        with without_lines_of(LINES):
            whole = self._tts.generate(text, self._wanted(number, speed), take)
        if not pieces and not left() and (samples := whole.samples):  # as of Kitten, which reports nothing meanwhile
            pieces.append((np.array(samples, np.float32), 1.0))
        return pieces

    def _wanted(self, number: int, speed: float) -> Any:
        """Return how the library is to say it: in which voice, and how fast."""
        wanted = self._library.GenerationConfig()
        wanted.sid = number
        wanted.speed = speed
        if self._references:
            wanted.reference_audio = self._references[number]
            wanted.reference_sample_rate = self._voice.rate_hz
        if self._voice.family == "zipvoice":
            wanted.reference_text = on_one_line(self._options.clones[number].text)
            wanted.num_steps = STEPS
        return wanted


STAGE = Speaker


def _options(mapping: Mapping[str, Any]) -> Options:
    options: Options = build(Options, dict(mapping), "options")
    if not 1 <= options.first_words <= 100:
        raise ConfigError("options.first_words: must be 1 to 100")
    check_clones(options.clones, ())
    return options


def _loaded(voice: SherpaVoice, threads: int) -> tuple[Any, Any]:
    library = sherpa_library("tts.sherpa")
    config = voice.config(library, threads)
    if not config.validate():
        raise WeightsError(f"sherpa-onnx refuses the voice in {voice.folder}; what it misses stands above in the log.")
    try:
        return library, library.OfflineTts(config)
    except RuntimeError as error:
        raise unloadable(str(voice.model), error) from error
