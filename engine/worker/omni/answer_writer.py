"""Conversion of an answer's tokens to chunks: text for the client, rows for the talker, tool calls, and Usage."""

from __future__ import annotations

import json
from collections.abc import Set

from engine.chunk import Checkpoint, Chunk, Tensors, Text, ToolCall, Usage
from engine.worker.omni.talker_feed import TalkerFeed, TextEnd
from engine.worker.omni.thinker_state import ThinkerState
from engine.worker.stage_request import StageRequest
from engine.worker.text.chat_encoder import Chat


class AnswerWriter:
    """Converts tokens to chunks. Tokens in ``ends`` end the answer.

    With ``resumes``, it also emits the checkpoints from which another replica can continue.
    """

    def __init__(self, chat: Chat, feed: TalkerFeed, ends: Set[int], resumes: bool) -> None:
        self._chat = chat
        self._feed = feed
        self.ends = ends
        self._resumes = resumes
        self._calls = chat.added.get("<tool_call>"), chat.added.get("</tool_call>")

    def write(self, req: StageRequest, token: int) -> list[Chunk]:
        """Return the chunks of the next token. After the last token the request is done."""
        thought: ThinkerState = req.state
        thought.last = token
        thought.output_ids.append(token)
        last = token in self.ends or thought.num_output_tokens >= thought.limit
        chunks = thought.speak() if thought.pieces.whole else []
        chunks += [] if token in self.ends else self._word(req, token, spoken=not last)
        if last:
            chunks += [*self._text(thought, *thought.pieces.flush()), *thought.speak(), *self._broken_off(thought)]
            chunks.append(self._usage(req, token))
            req.done = True
        return chunks

    def _word(self, req: StageRequest, token: int, spoken: bool) -> list[Chunk]:
        thought: ThinkerState = req.state
        opened, closed = self._calls
        if thought.call is not None:
            thought.call.append(token)
            return self._call(req) if token == closed else []
        if token == opened:
            thought.call = [token]
            thought.silent = True
            return [*thought.speak(), *self._silence(req, token)]
        chunks = self._text(thought, *thought.pieces.feed(token))
        if spoken and req.request.speaks and not thought.silent:
            thought.unspoken += self._feed.drawn(token, thought.characters)
        return [*chunks, *thought.speak()] if chunks else []

    def _silence(self, req: StageRequest, token: int) -> list[Chunk]:
        """Start a tool call: the voice stops here.

        Its first ids are a checkpoint from which another replica continues: text instead of the call would not be
        spoken.
        """
        if not req.request.speaks:
            return []
        ids = [*req.state.pieces.held, token]
        begun = Checkpoint({"start": req.state.num_output_tokens - len(ids), "ids": ids})
        return [*([begun] if self._resumes else []), Tensors.of(TextEnd())]

    def _text(self, thought: ThinkerState, text: str, ids: list[int]) -> list[Chunk]:
        start = thought.characters
        thought.characters = thought.characters + len(text)
        return [Text(text, start, tuple(ids))] if ids else []

    def _call(self, req: StageRequest) -> list[Chunk]:
        """Return a whole tool call (JSON between its marks). Invalid JSON is returned as text."""
        thought: ThinkerState = req.state
        ids = thought.call or []
        thought.call = None
        before = self._text(thought, *thought.pieces.flush())
        try:
            call = json.loads(self._chat.text(ids[1:-1]))
            name, arguments = str(call["name"]), json.dumps(call.get("arguments", {}))
        except (ValueError, KeyError, TypeError, AttributeError):
            return [*before, *self._text(thought, self._chat.text(ids), ids)]
        thought.called = True
        return [*before, ToolCall(f"call_{req.request.id}_{thought.num_output_tokens}", name, arguments, tuple(ids))]

    def _broken_off(self, thought: ThinkerState) -> list[Chunk]:
        """Return an unfinished tool call as text."""
        ids = thought.call or []
        thought.call = None
        return self._text(thought, self._chat.text(ids), ids) if ids else []

    def _usage(self, req: StageRequest, token: int) -> Usage:
        thought: ThinkerState = req.state
        assert thought.prompt is not None
        finish = "length" if token not in self.ends else "tool" if thought.called else "stop"
        prompt_ids = tuple(thought.prompt.ids.tolist()) if req.request.dump else ()
        return Usage(len(thought.prompt.ids), thought.num_output_tokens, finish=finish, prompt_ids=prompt_ids)
