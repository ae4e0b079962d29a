"""Base class of voices whose library runs in this process and speaks one clause at a time.

A step makes one piece of audio for one answer; the scheduler picks the most urgent one. If the listener leaves, the
answer ends after that piece.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from engine.chunk import Audio, Checkpoint, Chunk, array_fault
from engine.core import SPEAKER_RATE_HZ, StageInfo
from engine.deployment.config import ChunkSpec
from engine.errors import EngineError, StageFailed
from engine.worker.randomness import GOLDEN
from engine.worker.stage import guarded
from engine.worker.stage_request import StageRequest
from engine.worker.tts.answer_audio import LETTER_S, AnswerSound
from engine.worker.tts.clauses import WORDS, Clause, ResumePoint, clauses, on_one_line
from engine.worker.tts.joints import Piece, ends_within_phrase, joined
from engine.worker.tts.voices import asked_voice, can_say, unsayable


@dataclass(frozen=True, slots=True)
class Saying:
    """One clause to speak."""

    text: str
    voice: str
    seed: int = 0
    speed: float = 1.0
    left: Callable[[], bool] = lambda: False
    """Returns whether the listener has left, so that the rest need not be made."""


@dataclass(slots=True)
class ClauseAnswer:
    """State of an answer that is being spoken."""

    sound: AnswerSound
    voice: str
    said: int = 0
    """Characters of the answer that have been spoken."""
    count: int = 0
    """Clauses that have been spoken."""
    within: bool = False
    """Whether the previous clause ended in the middle of a phrase."""
    pieces: Iterator[Piece] | None = None
    """Remaining pieces of the current clause."""
    clause: Clause | None = None
    checkpoint: Checkpoint | None = None
    """State before the current clause, until a piece of the clause has been sent."""


class ClauseSpeaker:
    """Base class of such stages. A subclass implements ``pieces``, and ``describe`` with ``voice_info``.

    The randomness of a clause depends only on the request's seed and the clause's index. After a replica is lost,
    another one repeats the interrupted clause and skips the part that was sent.
    """

    info: StageInfo
    rate_hz: int = SPEAKER_RATE_HZ
    words: ChunkSpec = WORDS
    """Clause lengths in words."""
    phrases: bool = False
    """Whether the first clause may extend to the end of its phrase, because the voice is fast enough."""
    whole: bool = False
    """Whether a step makes a whole clause, because the library cannot pause within one."""

    def pieces(self, saying: Saying) -> Iterator[Piece]:
        """Yield the clause's audio at ``rate_hz`` as it is made.

        A piece may be empty, to let other answers take their turn. Closing the generator stops the library.
        """
        raise NotImplementedError

    def wording(self, text: str) -> str:
        """Return a clause's text in the form that the library needs."""
        return on_one_line(text)

    def warm_up(self) -> None:
        """Speak one word, so that the library allocates its memory before the first request."""
        for piece in self.pieces(Saying("hello", asked_voice(None, self.info.facets.voices))):
            _checked(piece)

    def open(self, req: StageRequest) -> None:
        left: Mapping[str, Any] = req.checkpoint or {}
        most = round(req.request.max_audio_s * SPEAKER_RATE_HZ)
        sound = AnswerSound(most, left.get("letter_s", LETTER_S), left.get("samples", 0))
        sound.sounded = bool(left)
        voice = asked_voice(req.request.voice, self.info.facets.voices)
        req.state = ClauseAnswer(sound, voice, left.get("said", 0), left.get("count", 0), left.get("within", False))

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Clause]:
        until = req.checkpoint["until"] if req.checkpoint else 0
        return clauses(req, inputs, self.words, ResumePoint(req.state.said, req.state.count, until), self.phrases)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [guarded(self, req, self._say) for req in reqs]

    def _say(self, req: StageRequest) -> list[Chunk]:
        speaking: ClauseAnswer = req.state
        if speaking.pieces is None and not req.pending:
            return self._end(req)
        sound: list[Audio] = []
        for wave, share in speaking.pieces or self._begin(req, req.pending.popleft()):
            sound += speaking.sound.push(wave, self.rate_hz, share)
            if not self.whole:
                break
        else:
            sound += self._finish(speaking)
        req.needs_input = speaking.pieces is None
        if speaking.sound.mute and not speaking.sound.sounded:
            raise unsayable(self.info.facets.languages)
        req.cut = speaking.sound.full or speaking.sound.mute
        req.done = req.cut
        if not sound or speaking.checkpoint is None:
            return [*sound]
        checkpoint = speaking.checkpoint
        speaking.checkpoint = None
        return [checkpoint, *sound]

    def _begin(self, req: StageRequest, clause: Clause) -> Iterator[Piece]:
        speaking: ClauseAnswer = req.state
        speaking.sound.begin(clause)
        speaking.clause = clause
        speaking.checkpoint = Checkpoint(
            {
                "samples": speaking.sound.samples,
                "letter_s": speaking.sound.letter_s,
                "said": speaking.said,
                "count": speaking.count,
                "until": clause.end,
                "within": speaking.within,
            }
        )
        sayable = can_say(clause.text, self.info.facets.languages)
        text = self.wording(clause.text) if sayable else ""
        # GOLDEN is odd, so no two clauses of an answer share a seed.
        seed = (req.request.sampling.seed + speaking.count * GOLDEN) % (1 << 64)
        saying = Saying(text, speaking.voice, seed, req.request.speed, lambda: req.closed)
        speaking.pieces = map(_checked, self.pieces(saying) if any(map(str.isalnum, text)) else ())
        ends_within = ends_within_phrase(clause.text)
        if self.whole:
            speaking.pieces = joined(speaking.pieces, self.rate_hz, speaking.within, ends_within)
        speaking.within = ends_within
        return speaking.pieces

    def _finish(self, speaking: ClauseAnswer) -> list[Audio]:
        """End the current clause and return the rest of its audio."""
        assert speaking.clause is not None
        speaking.said = speaking.clause.end
        speaking.count = speaking.count + 1
        speaking.pieces = None
        return speaking.sound.end()

    def _end(self, req: StageRequest) -> list[Chunk]:
        sound: AnswerSound = req.state.sound
        if sound.lettered and not sound.sounded:
            raise unsayable(self.info.facets.languages)
        req.done = True
        return []


def _checked(piece: Any) -> Piece:
    """Return a piece of a subclass's library. Raises StageFailed, because unscaled samples would be noise."""
    if not isinstance(piece, tuple) or len(cast("tuple[Any, ...]", piece)) != 2:
        raise StageFailed(f"pieces must yield pairs (wave, share), not a {type(piece).__name__}")
    wave, share = cast("tuple[Any, Any]", piece)
    if fault := array_fault(Audio(wave), "wave"):
        raise StageFailed(f"pieces must yield pairs (wave, share): {fault}")
    if share is not None and not 0 <= share <= 1:
        raise StageFailed(f"pieces must yield pairs (wave, share): share must be None, or 0 to 1 (got {share!r:.20})")
    return wave, share
