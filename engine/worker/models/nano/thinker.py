"""nano's thinker stage: turns speech, text and pictures into an answer or tool calls.

A small network reads the conversation (``tokens``). It writes fixed sentences, points to the user's words, or calls a
tool: one of the client's (``skills``), or one of nano's own (``own``), whose result is spoken unchanged. It was trained
on templated dialogues (engine/training/nano) and cannot hold a free conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine import core
from engine.chunk import Chunk, Finish, Text, ToolCall, Transcript, Usage, kinds
from engine.core import (
    CameraFeed,
    Facets,
    Message,
    StageInfo,
    TextPart,
    TokenCost,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
)
from engine.errors import Declined, EngineError, RequestError
from engine.worker.loop.prefix import Prefixes
from engine.worker.models.nano import own
from engine.worker.models.nano.declining import answers_strange_tool, certainty_of, doubt_of
from engine.worker.models.nano.doubt import UserTranscript, settled
from engine.worker.models.nano.examples import EXAMPLES
from engine.worker.models.nano.eyes import Eyes
from engine.worker.models.nano.messages import joined, shows, text_of
from engine.worker.models.nano.network import NanoPrefixKV, Network
from engine.worker.models.nano.options import check_options
from engine.worker.models.nano.sampling import draw
from engine.worker.models.nano.sayings import NO_TOOL
from engine.worker.models.nano.scene import Scene
from engine.worker.models.nano.sight import Sight
from engine.worker.models.nano.skills import CANNOT_TELL, arguments, declared, known, parse, skill_of
from engine.worker.models.nano.tokens import (
    CONTEXT,
    END,
    KNOWN,
    SAYING,
    TO,
    TOKENIZER,
    TOOL,
    VOCABULARY,
    WORD,
    WORDS,
    call_text,
    plain_text,
    prompt_ids,
    shown,
    user_words,
)
from engine.worker.stage import StageConfig, check_length, guarded, warm_up
from engine.worker.stage_request import StageRequest

PIECE = 128
"""Maximum tokens that one step prefills per request, about 10 ms."""
REMEMBER_MB = 64
"""Default size in MB of the cache of computed sessions (option ``remember_mb``). A full conversation takes 2 MB."""
TEMPERATURE, TOP_P = 0.7, 0.9
"""Defaults for values that the request leaves open. A confident word is then certain, but coin tosses stay random."""
COMPARED = 2
"""Number of latest turns with pictures to look at: the current one, and one to compare it with."""
MOST_CHARACTERS = 200_000
"""Maximum characters of a conversation without instructions, hundreds of times the context. Reading more would take
longer than the watchdog allows.
"""
WEIGHTS = Path(__file__).parents[3] / "weights" / "nano"


@dataclass(slots=True)
class NanoThinkerState:
    """State of one answer."""

    pending: list[int] = field(default_factory=list[int])
    """Tokens that go into the network next."""
    prompt: list[int] = field(default_factory=list[int])
    words: Sequence[str] = ()
    """The user's words, which the answer can point to."""
    view: own.View = field(default_factory=own.View)
    script: deque[tuple[str, list[int]]] = field(default_factory=deque[tuple[str, list[int]]])
    """Words to speak unchanged, with the tokens that represent them in the conversation."""
    output_ids: list[int] = field(default_factory=list[int])
    skills: Mapping[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    num_sent_characters: int = 0
    num_sent: int = 0
    """Number of ``output_ids`` whose text has been sent."""
    num_computed_tokens: int = 0
    num_output_tokens: int = 0
    certainty: float = 1.0
    """Lowest probability of a drawn token, including its synonyms."""
    held: list[Chunk] = field(default_factory=list[Chunk])
    """Chunks held back because the answer may still be declined."""
    judged: bool = False
    """Whether the answer has been accepted."""
    conv_states: list[tuple[int, NDArray[np.float32]]] = field(default_factory=list[tuple[int, NDArray[np.float32]]])
    """Positions from which a later request can continue, each with its convolution state."""


class Looking(Protocol):
    """Source of scene descriptions, such as ``Sight``."""

    def scenes(self, session: str, messages: Sequence[Message]) -> tuple[Scene | None, ...]: ...


@dataclass(frozen=True, slots=True)
class Sensed:
    """Input of the stage: what was said, typed and shown."""

    transcript: str | None
    """The transcript; None if nothing was spoken, "" if it was not understood."""
    messages: tuple[Message, ...]
    """The conversation."""
    scenes: tuple[Scene, ...]
    """Scenes of the newest pictures, oldest first."""
    reply: str = ""
    """A reply to give immediately, or "" if the network should answer."""


class Thinker:
    """The thinker stage: emits text, tool calls and usage."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        check_options(config)
        # A word takes two tokens (its marker and itself); an unknown word takes one per letter. Speech counts by its
        # words, a picture takes one token, and instructions are ignored.
        cost = TokenCost(character=0.6, instruction=0.0, audio_s=10.0, image=1.0, message=3.0)
        return StageInfo(
            takes=kinds(Transcript),
            emits=kinds(Text, ToolCall, Usage),
            feeds=kinds(Text),
            checkpoints=kinds(Text),
            answers=True,
            slots=config.slots,
            prepares=True,
            facets=Facets(
                model="nano",
                sees=frozenset({"image"}),
                camera=CameraFeed(),
                context=CONTEXT,
                cost=cost,
                tokenizer=TOKENIZER,
                examples=EXAMPLES,
            ),
        )

    def __init__(
        self, config: StageConfig, now: Callable[[], datetime] = datetime.now, sight: Looking | None = None
    ) -> None:
        self.info = self.describe(config)
        self._net = Network((config.weights or WEIGHTS) / "thinker.onnx", config.slots, config.threads)
        self._sight = sight or Sight(Eyes(config.weights or WEIGHTS, config.threads))
        self._now = now
        self._may_decline = config.may_decline
        self.prefixes: Prefixes[NanoPrefixKV] = Prefixes(
            int(float(config.options.get("remember_mb", REMEMBER_MB)) * 2**20)
        )

    def warm_up(self) -> None:
        warm_up(self, 2, Sensed(None, (Message("user", (TextPart("Hello."),)),), ()), steps=4)

    def open(self, req: StageRequest) -> None:
        req.state = NanoThinkerState()

    async def prepare(self, request: core.Request) -> None:
        """Analyse the user's pictures while they speak, which saves time when the answer starts."""
        await self._scenes(request.session, joined(request.messages))

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield one item once the user has finished. Pictures are analysed in a thread while the user speaks."""
        check_length([message for message in req.request.messages if message.role != "system"], MOST_CHARACTERS)
        if self._may_decline and answers_strange_tool(req.request):
            raise Declined("nano cannot interpret the result of that tool.")
        messages = joined(req.request.messages)
        scenes = await self._scenes(req.request.session, messages)
        transcript = UserTranscript("") if req.request.hears else None
        async for chunk in inputs:
            if isinstance(chunk, Transcript) and chunk.final and chunk.understood:
                transcript = UserTranscript(chunk.text, chunk.confident)
        meant = settled(messages, transcript)
        if meant.messages is not messages:
            scenes = await self._scenes(req.request.session, meant.messages)
        yield Sensed(meant.transcript, meant.messages, scenes, meant.reply)

    async def _scenes(self, session: str, messages: tuple[Message, ...]) -> tuple[Scene, ...]:
        showing = [message for message in messages if shows([message])][-COMPARED:]
        if not showing:
            return ()
        found = await asyncio.to_thread(self._sight.scenes, session, showing)
        return tuple(scene for scene in found if scene is not None)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """Run one decode step of all requests together, and one piece of prefill for each new request."""
        results: dict[int, list[Chunk] | EngineError] = {}
        for req in reqs:
            if req.pending and (error := guarded(self, req, self._begin, req.pending.popleft())):
                results[req.slot] = error
        thinking = [req for req in reqs if req.slot not in results]
        decoding = [req for req in thinking if len(req.state.pending) == 1]
        batches = [[req] for req in thinking if len(req.state.pending) > 1] + [decoding] * bool(decoding)
        for batch in batches:
            ids = [req.state.pending[:PIECE] for req in batch]
            logits = self._net.advance([s.slot for s in batch], ids, [s.state.num_computed_tokens for s in batch])
            for req, new, row in zip(batch, ids, logits, strict=True):
                results[req.slot] = guarded(self, req, self._advanced, len(new), row)
        given = [results[req.slot] if req.slot in results else _recite(req) for req in reqs]
        return [self._judged(req, one) for req, one in zip(reqs, given, strict=True)] if self._may_decline else given

    def _judged(self, req: StageRequest, given: list[Chunk] | EngineError) -> list[Chunk] | EngineError:
        """Hold an answer back until it is complete enough to judge, and decline it if another model should answer."""
        thought: NanoThinkerState = req.state
        if thought.judged or isinstance(given, EngineError):
            return given
        thought.held += given
        if thought.pending and not req.done:
            return []
        said = shown(thought.output_ids, thought.words) or "".join(word for word, _ in thought.script)
        if reason := doubt_of(req.request, said, thought.certainty):
            return Declined(reason)
        thought.judged = True
        return thought.held

    def _begin(self, req: StageRequest, sensed: Sensed) -> EngineError | None:
        """Set up the answer. Returns an error if a tool call is required but impossible."""
        req.needs_input = False
        messages, transcript = sensed.messages, sensed.transcript
        if req.request.must_call and (transcript == "" or sensed.reply):
            return _uncalled(req, "nano did not understand the speech")
        if req.request.must_call and not known(req.request.offers, own.TOOLS):
            return _uncalled(req, "nano cannot use any of these tools")
        if sensed.reply:
            _say(req.state, sensed.reply)
        else:
            req.state.skills = declared(req.request.offers)
            req.state.prompt = prompt_ids(messages, transcript, req.state.skills)
            req.state.words = user_words(messages, transcript)
            req.state.view = self._view(messages, sensed.scenes)
            self._recall(req)
        return None

    def _view(self, messages: Sequence[Message], scenes: Sequence[Scene]) -> own.View:
        answers = [text for message in messages if message.role == "assistant" and (text := text_of(message).strip())]
        calls = [part.name for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
        results = [part.output for message in messages for part in message.parts if isinstance(part, ToolResultPart)]
        return own.View(
            answers, scenes, skill_of(calls[-1]) if calls else "", plain_text(results[-1]) if results else "", self._now
        )

    def _recall(self, req: StageRequest) -> None:
        """Reuse a cached prefix of the prompt. At least the last token is computed, to get its logits."""
        thought: NanoThinkerState = req.state
        found = self.prefixes.find(req.request.session, thought.prompt)
        if found is not None:
            shared, prefix = found
            usable = [(n, conv_state) for n, conv_state in prefix.ends if n <= min(shared, len(thought.prompt) - 1)]
            if usable:
                thought.num_computed_tokens, conv_state = usable[-1]
                thought.conv_states = usable
                self._net.restore(req.slot, thought.num_computed_tokens, prefix, conv_state)
        thought.pending = thought.prompt[thought.num_computed_tokens :]

    def _remember(self, req: StageRequest) -> None:
        """Cache the computed state for the session's next request."""
        thought: NanoThinkerState = req.state
        thought.conv_states = [*thought.conv_states, (thought.num_computed_tokens, self._net.conv_state(req.slot))]
        prefix = self._net.prefix_kv(req.slot, thought.num_computed_tokens, thought.conv_states)
        ids = (thought.prompt + thought.output_ids)[: thought.num_computed_tokens]
        self.prefixes.keep(req.request.session, ids, prefix, prefix.size)

    def _advanced(self, req: StageRequest, count: int, logits: NDArray[np.float32]) -> list[Chunk] | EngineError:
        thought: NanoThinkerState = req.state
        thought.num_computed_tokens += count
        thought.pending = thought.pending[count:]
        if thought.pending:
            return []
        if not thought.num_output_tokens:
            self._remember(req)
        logits, step = np.where(_allowed(thought), logits, -np.inf), thought.num_output_tokens
        drawn = draw(logits, req.request.sampling, step, TEMPERATURE, TOP_P)
        thought.num_output_tokens += 1
        thought.certainty = min(thought.certainty, certainty_of(logits, drawn))
        chunks = self._take(req, drawn)
        if isinstance(chunks, EngineError):
            return chunks
        whole = thought.num_computed_tokens + len(thought.pending)
        full = thought.num_output_tokens >= req.request.max_text_tokens or whole >= CONTEXT
        return [*chunks, *_finish(req, "length")] if full and thought.pending and not req.done else chunks

    def _take(self, req: StageRequest, drawn: int) -> list[Chunk] | EngineError:
        """Handle a drawn token: send its text immediately, or call a tool once the call is complete."""
        thought: NanoThinkerState = req.state
        thought.pending = [drawn]
        if req.request.must_call and not thought.output_ids and drawn != TOOL:
            return _uncalled(req, _UNFIT)
        if drawn != END:
            thought.output_ids.append(drawn)
            return [] if TOOL in thought.output_ids or drawn == TO else _counted(req, _flush(thought))
        self._remember(req)
        if TOOL not in thought.output_ids:
            return _finish(req, "stop")
        return self._call(req, call_text(thought.output_ids[thought.output_ids.index(TOOL) + 1 :], thought.words))

    def _call(self, req: StageRequest, call: str) -> list[Chunk] | EngineError:
        """Call the client's tool if it declared one; otherwise nano's own tool, or say that there is none.

        If the request requires a call and it cannot be made, return an error.
        """
        thought: NanoThinkerState = req.state
        name, values = parse(call)
        if any(tool.name == call for tool in req.request.offers):
            return _called(req, call, {})
        filled = arguments(name, thought.skills[name], values) if name in thought.skills else None
        if filled is None and req.request.must_call:
            return _uncalled(req, _UNFIT)
        if name in thought.skills:
            return _say(thought, CANNOT_TELL) if filled is None else _called(req, thought.skills[name].name, filled)
        text = own.answer(call, thought.view)
        return _say(thought, NO_TOOL) if text is None else _say(thought, text, [*thought.output_ids, END])


_UNFIT = "nano cannot fill in a tool's arguments from the request"


def _uncalled(req: StageRequest, why: str) -> RequestError:
    return RequestError(f"tool_choice: {req.request.tool_choice!r} requires a tool call, but {why}.")


def _called(req: StageRequest, name: str, filled: dict[str, Any]) -> list[Chunk]:
    """Return the client's tool call, which ends the answer."""
    req.state.output_ids = []
    return [ToolCall(f"call_{req.request.id}", name, json.dumps(filled)), *_finish(req, "tool")]


def _say(thought: NanoThinkerState, text: str, ids: Sequence[int] = ()) -> list[Chunk]:
    """Speak a text unchanged as the answer; ``ids`` represent it in the conversation."""
    words = re.findall(r"\S+\s*", text)
    thought.output_ids = []
    thought.pending = []
    thought.script = deque((word, [] if n else list(ids)) for n, word in enumerate(words))
    return []


def _counted(req: StageRequest, texts: list[Text]) -> list[Chunk]:
    """Return the text to send, limited to the request's maximum. Each word counts as one token."""
    thought: NanoThinkerState = req.state
    words = re.findall(r"\s*\S+", "".join(one.text for one in texts))
    over = thought.num_output_tokens + len(words) - 1 - req.request.max_text_tokens
    if over <= 0 or not words:
        thought.num_output_tokens += max(0, len(words) - 1)
        return [*texts]
    thought.num_output_tokens = req.request.max_text_tokens
    return [Text("".join(words[:-over]), texts[0].start), *_finish(req, "length")]


def _flush(thought: NanoThinkerState) -> list[Text]:
    """Return the text that is new since the last call."""
    text = shown(thought.output_ids, thought.words)[thought.num_sent_characters :]
    if not text:
        return []
    new = Text(text, thought.num_sent_characters, tuple(thought.output_ids[thought.num_sent :]))
    thought.num_sent_characters = new.end
    thought.num_sent = len(thought.output_ids)
    return [new]


def _finish(req: StageRequest, why: Finish) -> list[Chunk]:
    thought: NanoThinkerState = req.state
    req.done = True
    prompt_ids = tuple(thought.prompt) if req.request.dump else ()
    usage = Usage(len(thought.prompt), thought.num_output_tokens, finish=why, prompt_ids=prompt_ids)
    return [*_flush(thought), usage]


def _recite(req: StageRequest) -> list[Chunk]:
    """Return the next word of a text that is spoken unchanged."""
    thought: NanoThinkerState = req.state
    if not thought.script:
        return _finish(req, "stop")
    word, ids = thought.script.popleft()
    text = Text(word, thought.num_sent_characters, tuple(ids))
    thought.num_output_tokens = thought.num_output_tokens + 1
    thought.num_sent_characters = text.end
    full = thought.prompt and thought.script and thought.num_output_tokens >= req.request.max_text_tokens
    return [text, *_finish(req, "length")] if full else [text]


def _allowed(thought: NanoThinkerState) -> NDArray[np.bool_]:
    """Return the mask of allowed next tokens.

    A tool call consists of known words, any other answer of sayings; both may point to the user's words.
    """
    allowed = np.zeros(VOCABULARY, bool)
    last = thought.output_ids[-1] if thought.output_ids else END
    allowed[WORD : WORD + min(len(thought.words), WORDS)] = True
    if TOOL in thought.output_ids:
        allowed[KNOWN:SAYING] = True
        allowed[END] = last != TOOL
    else:
        allowed[SAYING:] = last != TO
        allowed[TO] = WORD <= last < KNOWN
        allowed[TOOL] = last == END
        allowed[END] = last != END
    return allowed
