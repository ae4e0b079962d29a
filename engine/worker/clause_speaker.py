"""Voices whose library gives a clause's sound in pieces, while it makes it: what their stages share.

A step makes one piece of one answer, for the listener who needs it most; to leave an answer ends it with that piece.
Knows no library.
"""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chunk import Audio, Checkpoint, Chunk, Text, VoiceText, kinds
from engine.core import SPEAKER_RATE_HZ, Facets, StageInfo, Voice, Wave
from engine.errors import ConfigError, EngineError, RequestError, StageFailed
from engine.nearest import nearest
from engine.worker.answer_sound import LETTER_S, AnswerSound
from engine.worker.clauses import Clause, Resume, clauses, on_one_line
from engine.worker.stage import StageConfig, guarded
from engine.worker.stage_request import StageRequest

CLAUSES_AHEAD = 64
"""Clauses that wait to be said: some minutes of speech. Text goes on to the client while the voice is behind."""

LATIN = frozenset(["cs", "cy", "da", "de", "en", "es", "et", "fi", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr"])
"""Languages, of those that there are voices for, that are written in Latin letters."""

_SEED = 0x9E3779B97F4A7C15  # odd, so that no two clauses of an answer share a seed


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
    """Of the clause that is being said."""
    clause: Clause | None = None
    left: Checkpoint | None = None
    """Where a successor goes on, until a piece of the clause has been given."""


class ClauseSpeaker:
    """Base of such stages: they write ``pieces``, and ``describe`` what ``spoken_by`` makes.

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

    def open(self, req: StageRequest) -> None:
        left: Mapping[str, Any] = req.checkpoint or {}
        most = round(req.request.max_audio_s * SPEAKER_RATE_HZ)
        sound = AnswerSound(most, left.get("letter_s", LETTER_S), left.get("samples", 0))
        sound.sounded = bool(left)
        req.state = Speaking(sound, self._voice_of(req.request.voice), left.get("said", 0), left.get("count", 0))

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
        seed = (req.request.sampling.seed + speaking.count * _SEED) % (1 << 64)
        sayable = clause.lettered and can_say(text, self.info.facets.languages)
        speaking.sound.begin(clause)
        speaking.clause = clause
        speaking.pieces = self.pieces(text, speaking.voice, seed) if sayable else iter(())
        speaking.left = Checkpoint({
            "samples": speaking.sound.samples, "letter_s": speaking.sound.letter_s,
            "said": speaking.said, "count": speaking.count, "until": clause.end,
        })  # fmt: skip
        return speaking.pieces

    def _finish(self, speaking: Speaking) -> list[Audio]:
        """The clause is over."""
        assert speaking.clause is not None
        speaking.said, speaking.count, speaking.pieces = speaking.clause.end, speaking.count + 1, None
        return speaking.sound.end()

    def _end(self, req: StageRequest) -> list[Chunk]:
        sound: AnswerSound = req.state.sound
        if sound.lettered and not sound.sounded:
            known = ", ".join(self.info.facets.languages) or "another language"
            raise StageFailed(f"The voice can say nothing of this answer: it speaks {known}.")
        req.done = True
        return []

    def _voice_of(self, asked: str | None) -> str:
        """The voice that a request asks for. What reaches the library is one of these names, and no address."""
        names = [one.id for one in self.info.facets.voices]
        if asked and asked not in names:
            raise RequestError(f"There is no voice {asked!a:.100} ({nearest(asked, names)}).")
        return asked or (names[0] if names else "")


def spoken_by(config: StageConfig, names: Sequence[str], first: str, languages: tuple[str, ...]) -> StageInfo:
    """What such a stage says of itself: who speaks, ``first`` where a request names nobody (empty: the first name).

    Raises ConfigError where nobody is called that.
    """
    if first and first not in names:
        raise ConfigError(f"options.voice: there is no {first!r:.80} ({nearest(first, names)})")
    ordered = [*([first] if first else []), *(name for name in names if name != first)]
    voices = tuple(Voice(name, name.replace("_", " ").title(), languages[0] if languages else "") for name in ordered)
    return StageInfo(
        takes=kinds(Text, VoiceText), emits=kinds(Audio), slots=config.slots, batch=1, blocking=True,
        max_pending=CLAUSES_AHEAD, facets=Facets(voices=voices, languages=languages),
    )  # fmt: skip


def can_say(text: str, languages: Sequence[str]) -> bool:
    """Whether there is anything in a text that voices of these languages have learnt to read: a digit, or a letter of
    their script. Chinese characters make a voice of European languages babble."""
    if not languages or any(language.split("-")[0].lower() not in LATIN for language in languages):
        return True
    return any(one.isdecimal() or unicodedata.name(one, "").startswith("LATIN") for one in text if one.isalnum())
