"""What the user was heard to say, for a client that wants to know: from an answer's ears, or from ears alone.

Knows no wire format and no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.realtime import notices
from app.realtime.conversation import Conversation
from app.realtime.hearing import Turn
from app.realtime.house import House
from app.realtime.ids import new_id
from app.realtime.options import Options
from engine import MIC_RATE_HZ, EngineError, Request, Transcript


class Transcripts:
    """One session's. ``tasks`` is set before the first command; ``options`` are the session's."""

    tasks: asyncio.TaskGroup

    def __init__(
        self,
        session_id: str,
        house: House,
        conversation: Conversation,
        options: Options,
        tell: Callable[[notices.Notice], None],
    ) -> None:
        self.options = options
        self._session_id, self._house, self._conversation, self._tell = session_id, house, conversation, tell
        self._hearing: dict[str, asyncio.Task[None]] = {}
        self._partial = ("", "")  # the item of the last partial words that were told, and the words

    def hear(self, turn: Turn) -> None:
        """Hear a turn that gets no answer, from now on, if the client wants transcripts. May be called twice."""
        if self._wanted and turn.item_id not in self._hearing:
            task = self.tasks.create_task(self._hear(turn), name=f"transcribe:{turn.item_id}")
            self._hearing[turn.item_id] = task
            task.add_done_callback(lambda _: self._hearing.pop(turn.item_id))

    def hearing(self, item_id: str, words: str) -> None:
        """Ears have understood so much of an item, spoken on perhaps.

        Words that only take back what was told are not told: a request that hears a turn anew from its beginning
        catches up with the one before it.
        """
        heard = self._conversation.heard(item_id)
        if not self._told(item_id).startswith(words) and (heard is None or heard.transcript is None):
            self._tell_words(item_id, words, final=False)

    def heard(self, item_id: str, transcript: str) -> None:
        """Ears have heard all of an item; the first ones count."""
        heard = self._conversation.heard(item_id)
        if heard is None or heard.transcript is not None:
            return
        self._conversation.transcribe(item_id, transcript)
        self._tell_words(item_id, transcript, final=True)
        if self.options.transcribes:
            self._tell(notices.Transcribed(item_id, transcript, len(heard.pcm) / MIC_RATE_HZ))

    def unheard(self, item_id: str, code: str = "no_transcript", why: str = "The audio was not transcribed.") -> None:
        """Whoever was to hear an item has ended: the client waits for a transcript that will not come."""
        heard = self._conversation.heard(item_id)
        if heard is None or heard.transcript is not None:
            return
        self._tell_words(item_id, self._told(item_id), final=True)
        if self.options.transcribes:
            self._tell(notices.TranscriptionFailed(item_id, code, why))

    def leave(self) -> None:
        """The client is gone."""
        for task in self._hearing.values():
            task.cancel()

    @property
    def _wanted(self) -> bool:
        return self.options.transcribes or self.options.parley.partials

    def _told(self, item_id: str) -> str:
        """The words of an item that the client was told last."""
        return self._partial[1] if self._partial[0] == item_id else ""

    def _tell_words(self, item_id: str, words: str, final: bool) -> None:
        if self.options.parley.partials:
            self._partial = (item_id, words)
            self._tell(notices.WordsHeard(item_id, words, final))

    async def _hear(self, turn: Turn) -> None:
        """Ask the engine for nothing but the transcript."""
        request = Request(
            id=new_id("heard"),
            session=self._session_id,
            messages=(),
            live=True,
            wants=frozenset({"transcript"}),
        )
        try:
            async with self._house.engine.open(request, turn.follow()) as chunks:
                async for chunk in chunks:
                    if not isinstance(chunk, Transcript):
                        continue
                    self.hearing(turn.item_id, chunk.text)
                    if chunk.final:
                        await turn.over()
                        self.heard(turn.item_id, chunk.text)
                        return
            await turn.over()
            self.unheard(turn.item_id)
        except EngineError as error:
            await turn.over()
            self.unheard(turn.item_id, error.code, str(error))
