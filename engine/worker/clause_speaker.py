"""Base of voices whose library gives a clause's sound in pieces, while it makes it.

A step makes one piece of one answer, for the listener who needs it most. An answer that is left ends with that piece.
Knows no library.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chunk import Audio, Checkpoint, Chunk
from engine.core import SPEAKER_RATE_HZ, StageInfo, Wave
from engine.errors import EngineError
from engine.worker.answer_sound import LETTER_S, AnswerSound
from engine.worker.clauses import Clause, Resume, clauses, on_one_line
from engine.worker.randomness import GOLDEN
from engine.worker.speaking import asked_voice, can_say, unsayable
from engine.worker.stage import guarded
from engine.worker.stage_request import StageRequest


@dataclass(slots=True)
class Speaking:
    """One answer on its way."""

    sound: AnswerSound
    voice: str
    said: int = 0
    """Characters of the answer."""
    count: int = 0
    """Clauses."""
    pieces: Iterator[Wave] | None = None
    """Pieces of the clause that is being said."""
    clause: Clause | None = None
    left: Checkpoint | None = None
    """The place where a successor goes on, until a piece of the clause has been given."""


class ClauseSpeaker:
    """Base of such stages: they write ``pieces``, and ``describe`` as ``voice_info`` makes it.

    A clause's randomness follows from the request's seed and the clause's number alone. So on another replica the
    answer goes on as it would have here: at the clause that was on its way, which is made anew and left out as far as
    it was given.
    """

    info: StageInfo
    rate_hz: int = SPEAKER_RATE_HZ

    def pieces(self, text: str, voice: str, seed: int) -> Iterator[Wave]:
        """The sound of a text at ``rate_hz``, as it comes; a piece may be empty, so that others take their turn.

        Closing it ends what goes on for it.
        """
        raise NotImplementedError

    def warm_up(self) -> None:
        """Its memory is asked for before somebody waits for it."""
        for _ in self.pieces("hello", asked_voice(None, self.info.facets.voices), 0):
            pass

    def open(self, req: StageRequest) -> None:
        left: Mapping[str, Any] = req.checkpoint or {}
        most = round(req.request.max_audio_s * SPEAKER_RATE_HZ)
        sound = AnswerSound(most, left.get("letter_s", LETTER_S), left.get("samples", 0))
        sound.sounded = bool(left)
        voice = asked_voice(req.request.voice, self.info.facets.voices)
        req.state = Speaking(sound, voice, left.get("said", 0), left.get("count", 0))

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Clause]:
        until = req.checkpoint["until"] if req.checkpoint else 0
        return clauses(req, inputs, resume=Resume(req.state.said, req.state.count, until))

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [guarded(self, req, self._say) for req in reqs]

    def _say(self, req: StageRequest) -> list[Chunk]:
        speaking: Speaking = req.state
        if speaking.pieces is None and not req.pending:
            return self._end(req)
        pieces = speaking.pieces or self._begun(req, req.pending.popleft())
        wave = next(pieces, None)
        sound = self._finish(speaking) if wave is None else speaking.sound.push(wave, self.rate_hz)
        req.needs_input = speaking.pieces is None
        req.done = speaking.sound.full
        left, speaking.left = (speaking.left, None) if sound else (None, speaking.left)
        return [left, *sound] if left is not None else [*sound]

    def _begun(self, req: StageRequest, clause: Clause) -> Iterator[Wave]:
        """The pieces of the next clause."""
        speaking: Speaking = req.state
        text = on_one_line(clause.text)
        # GOLDEN is odd, so that no two clauses of an answer share a seed.
        seed = (req.request.sampling.seed + speaking.count * GOLDEN) % (1 << 64)
        sayable = clause.lettered and can_say(text, self.info.facets.languages)
        speaking.sound.begin(clause)
        speaking.clause = clause
        speaking.pieces = self.pieces(text, speaking.voice, seed) if sayable else iter(())
        speaking.left = Checkpoint(
            {
                "samples": speaking.sound.samples,
                "letter_s": speaking.sound.letter_s,
                "said": speaking.said,
                "count": speaking.count,
                "until": clause.end,
            }
        )
        return speaking.pieces

    def _finish(self, speaking: Speaking) -> list[Audio]:
        """The clause is over."""
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
