"""Transcripts of the user's speech for clients that want them: from an answer's request, or from one of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from app.ids import new_id
from app.realtime.conversation import Conversation, Utterance, is_untranscribed, with_transcript
from app.realtime.output.caption import Caption
from app.realtime.protocol import MessageItem, ServerEvent, SessionOptions, UserAudio, server_events
from app.realtime.session_context import SessionContext
from app.realtime.speech_hints import speech_hints
from app.realtime.waits import Waits
from app.telemetry import ASKED, log_failure
from engine import MIC_RATE_HZ, AudioPart, EngineError, Message, Request, Transcript

CAPTIONS = 4
"""Items whose captions are kept: a turn may wait for its transcript while the next one is spoken."""


class Transcripts:
    """The transcripts of one session. ``tasks`` is set before the first event; ``options`` are the session's
    settings.
    """

    tasks: asyncio.TaskGroup

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        conversation: Conversation,
        options: SessionOptions,
        emit: Callable[[ServerEvent], None],
    ) -> None:
        self.options = options
        self._session_id = session_id
        self._context = context
        self._conversation = conversation
        self._emit = emit
        self._running: dict[str, asyncio.Task[str]] = {}
        self._failed = set[str]()  # items that were reported as failed; the next response tries again
        self._left = False
        self._captions: dict[str, Caption] = {}  # of items without a final transcript

    def transcribe(self, utterance: Utterance) -> None:
        """Transcribe a turn that gets no answer, if the client wants transcripts. May be called twice."""
        if self._wanted and utterance.item_id not in self._running:
            self._start(utterance.item_id, self._transcribe(utterance, self._context.waits.part()))

    async def of(self, items: Sequence[MessageItem]) -> list[MessageItem]:
        """Return items with the transcripts of their speech; "" where it can't be transcribed."""
        running = [self._transcript_of(item) for item in items]
        await asyncio.wait(running)  # other responses may wait for the same transcripts: they are never cancelled
        return [with_transcript(item, task.result()) for item, task in zip(items, running, strict=True)]

    def response_ended(self, item_id: str) -> None:
        """Transcribe the speech of an item whose response has ended without its transcript, if the client wants it."""
        item = self._conversation.find(item_id)
        if item_id in self._running or not is_untranscribed(item):
            return
        if self._wanted and self._context.engine.model.reads_transcripts and not self._left:
            self._transcript_of(item)
        else:
            self.fail(item_id)

    def show_partial(self, item_id: str, words: str, committed: bool) -> None:
        """Send an interim transcript of an item: its stable words, and as our extension all words so far.

        Nothing is sent for a committed item that was deleted, or that has its final transcript. A transcript that is
        only a prefix of the last one is not sent: a restarted request first catches up with the previous one.
        """
        audio = self._conversation.user_audio(item_id)
        is_due = audio.transcript is None if audio is not None else not committed
        if not is_due:
            return
        caption = self._caption(item_id)
        if not caption.words.startswith(words):
            self._emit_delta(item_id, caption.grow(words))
            self._emit_words(item_id, words, final=False)

    def complete(self, item_id: str, transcript: str, language: str = "") -> None:
        """Set the final transcript of an item, and its detected language. Only the first one counts."""
        audio = self._conversation.user_audio(item_id)
        if audio is None or audio.transcript is not None:
            return
        self._conversation.transcribe(item_id, transcript, language)
        self._emit_delta(item_id, self._take_caption(item_id).finish(transcript))
        self._emit_words(item_id, transcript, final=True)
        if self.options.transcribes:
            self._emit(server_events.TranscriptionCompletedEvent(item_id, transcript, len(audio.pcm) / MIC_RATE_HZ))

    def fail(self, item_id: str, code: str = "no_transcript", why: str = "The audio was not transcribed.") -> None:
        """Report that an item will not be transcribed."""
        audio = self._conversation.user_audio(item_id)
        if audio is None or audio.transcript is not None or item_id in self._failed:
            return
        self._failed.add(item_id)
        self._emit_words(item_id, self._take_caption(item_id).words, final=True)
        if self.options.transcribes:
            self._emit(server_events.TranscriptionFailedEvent(item_id, code, why))

    def leave(self) -> None:
        """Cancel everything when the client has left."""
        self._left = True
        for task in self._running.values():
            task.cancel()

    @property
    def _wanted(self) -> bool:
        return self.options.transcribes or self.options.parley.partials

    def _caption(self, item_id: str) -> Caption:
        caption = self._captions.setdefault(item_id, Caption())
        if len(self._captions) > CAPTIONS:
            del self._captions[next(iter(self._captions))]
        return caption

    def _take_caption(self, item_id: str) -> Caption:
        """Remove and return an item's caption: it has its final transcript, or gets none."""
        return self._captions.pop(item_id, Caption())

    def _emit_delta(self, item_id: str, delta: str) -> None:
        if delta and self.options.transcribes:
            self._emit(server_events.TranscriptionDeltaEvent(item_id, 0, delta))

    def _emit_words(self, item_id: str, words: str, final: bool) -> None:
        if self.options.parley.partials:
            self._emit(server_events.TranscriptionPartialEvent(item_id, words, final))

    def _transcript_of(self, item: MessageItem) -> asyncio.Task[str]:
        """Return the task that transcribes an item."""
        running = self._running.get(item.id)
        return running or self._start(item.id, self._transcribe_item(item, self._context.waits.part()))

    def _start(self, item_id: str, work: Coroutine[Any, Any, str]) -> asyncio.Task[str]:
        task = self.tasks.create_task(work, name=f"transcribe:{item_id}")
        self._running[item_id] = task
        task.add_done_callback(lambda _: self._running.pop(item_id))
        return task

    async def _transcribe(self, utterance: Utterance, waits: Waits) -> str:
        """Request only a transcript from the engine. Returns it, or "" if that fails."""
        await waits.moment()
        try:
            async with self._context.engine.open(self._request(live=True), utterance.follow()) as chunks:
                async for chunk in chunks:
                    if not isinstance(chunk, Transcript):
                        continue
                    self.show_partial(utterance.item_id, chunk.text, utterance.closed)
                    if chunk.final:
                        await utterance.over()
                        self.complete(utterance.item_id, chunk.text, chunk.language)
                        return chunk.text
            await utterance.over()
            self.fail(utterance.item_id)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the session
            await utterance.over()
            self._fail_with(utterance.item_id, error)
        return ""

    async def _transcribe_item(self, item: MessageItem, waits: Waits) -> str:
        """Request the transcript of an item. Returns it, or "" if that fails."""
        await waits.moment()
        speech = tuple(AudioPart(part.pcm) for part in item.content if isinstance(part, UserAudio))
        try:
            async with self._context.engine.open(self._request(Message("user", speech))) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Transcript) and chunk.final:
                        self.complete(item.id, chunk.text, chunk.language)
                        return chunk.text
            self.fail(item.id)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the session
            self._fail_with(item.id, error)
        return ""

    def _fail_with(self, item_id: str, error: Exception) -> None:
        """Report the error of a transcription. A bug of ours is logged with its place."""
        if isinstance(error, EngineError):
            self.fail(item_id, error.code, error.public)
        else:
            log_failure("transcript.bug", session=self._session_id, item=item_id)
            self.fail(item_id, "server_error", "The server failed to transcribe the audio.")

    def _request(self, *messages: Message, live: bool = False) -> Request:
        return Request(
            id=new_id("heard"),
            session=self._session_id,
            owner=ASKED.get().owner,
            messages=messages,
            live=live,
            hints=speech_hints(self.options),
            wants=frozenset({"transcript"}),
        )
