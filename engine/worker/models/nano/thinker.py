"""The thinker of nano: the stage that turns what was heard, typed and seen into words and tool calls.

A small network reads the conversation (``tokens``) and writes what to say, in sayings and by pointing at the user's
words, or which tool to call: one of the client's (``skills``), or one of nano's own (``own``), whose words are then
said as they stand. It was trained on templated dialogues (engine/training/nano); it converses about nothing else.

It knows no audio, no socket and no other stage.
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
"""The most ids that one step prefills for a request: about 10 ms."""
REMEMBER_MB = 64
"""Megabytes for what was computed for sessions that may go on, unless the options say otherwise: a full conversation
takes 2."""
TEMPERATURE, TOP_P = 0.7, 0.9
"""The values where a request leaves them open. A word that the model is sure of is then certain; coins still fall both
ways."""
COMPARED = 2
"""The newest turns with pictures that are looked at: one is asked about, and what has changed since another."""
MOST_CHARACTERS = 200_000
"""The most characters of a conversation, instructions aside (they are not read): hundreds of times the context. To read
more takes longer than a worker may be silent."""
WEIGHTS = Path(__file__).parents[3] / "weights" / "nano"


@dataclass(slots=True)
class NanoThinkerState:
    """One answer on its way.

    ``pending`` ids go into the network next; ``words`` are those that the user spoke; ``script`` is text to be spoken
    as it stands, with the ids that it stands for in the conversation. Of the
    ``output_ids`` ``num_sent`` have been passed on, of their text ``num_sent_characters``.
    """

    pending: list[int] = field(default_factory=list[int])
    prompt: list[int] = field(default_factory=list[int])
    words: Sequence[str] = ()
    view: own.View = field(default_factory=own.View)
    script: deque[tuple[str, list[int]]] = field(default_factory=deque[tuple[str, list[int]]])
    output_ids: list[int] = field(default_factory=list[int])
    skills: Mapping[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    num_sent_characters: int = 0
    num_sent: int = 0
    num_computed_tokens: int = 0
    num_output_tokens: int = 0
    certainty: float = 1.0
    """The least probability of a token that was drawn, with the others that would have said the same."""
    held: list[Chunk] = field(default_factory=list[Chunk])
    """Chunks of an answer that may still be declined."""
    judged: bool = False
    """Whether the answer was found good enough to be given."""
    conv_states: list[tuple[int, NDArray[np.float32]]] = field(default_factory=list[tuple[int, NDArray[np.float32]]])
    """Positions from which a later request can go on: how many, and what the convolutions remembered there."""


class Looking(Protocol):
    """The source of pictures' scenes: ``Sight``, or a script in its place."""

    def scenes(self, session: str, messages: Sequence[Message]) -> tuple[Scene | None, ...]: ...


@dataclass(frozen=True, slots=True)
class Sensed:
    """The stage's row: the ``transcript`` (None: nothing was spoken, "": it was not understood), and what was seen.

    ``messages`` is the conversation, ``scenes`` are the newest of what it shows, oldest first. ``reply`` is what to say
    at once, "" where the thinker is to answer.
    """

    transcript: str | None
    messages: tuple[Message, ...]
    scenes: tuple[Scene, ...]
    reply: str = ""


class Thinker:
    """The stage: a row is what was heard and seen; out go words, tool calls and the usage."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        # A word and its mark are two tokens, but a word that is not known has a token a letter; speech counts as its
        # words, a picture is one mark. No instructions.
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
        """Look at what the user shows while they speak: a picture that was looked at costs the answer no time."""
        await self._scenes(request.session, joined(request.messages))

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """One row, once the user has finished; pictures are looked at beside the step loop while they speak."""
        check_length([message for message in req.request.messages if message.role != "system"], MOST_CHARACTERS)
        if self._may_decline and answers_strange_tool(req.request):
            raise Declined("nano does not know what to say about the result of that tool.")
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
        """One decode step of all requests together, or one piece of prefill for those that have just begun."""
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
        """Hold an answer back until all of it is known, and decline it if another model should give it."""
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
        """Find what to say, or to think about. Returns why, where a tool must be called and none can be."""
        req.needs_input = False
        messages, transcript = sensed.messages, sensed.transcript
        if req.request.must_call and (transcript == "" or sensed.reply):
            return _uncalled(req, "nano did not understand what was said")
        if req.request.must_call and not known(req.request.offers, own.TOOLS):
            return _uncalled(req, "nano does not know how to use any of those tools")
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
        """Take over what is known of the prompt; its last id at least goes through the network for its logits."""
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
        """Keep what the network has been fed for the session's next request."""
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
        """Act on a drawn id: what is to be said is passed on at once, a tool is called when the call is whole."""
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
        """Hand the call to a client that declared the tool; else it is one of nano's own, or there is none.

        Where a call is all that will do, one that can't be made is an error.
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


_UNFIT = "nano cannot fill a tool's arguments from what was asked"


def _uncalled(req: StageRequest, why: str) -> RequestError:
    return RequestError(f"tool_choice: {req.request.tool_choice!r} asks for a call, and {why}.")


def _called(req: StageRequest, name: str, filled: dict[str, Any]) -> list[Chunk]:
    """The call of the client's tool ends the answer."""
    req.state.output_ids = []
    return [ToolCall(f"call_{req.request.id}", name, json.dumps(filled)), *_finish(req, "tool")]


def _say(thought: NanoThinkerState, text: str, ids: Sequence[int] = ()) -> list[Chunk]:
    """The text as it stands, in place of an answer; in the conversation ``ids`` stand for it, if there are any."""
    words = re.findall(r"\S+\s*", text)
    thought.output_ids = []
    thought.pending = []
    thought.script = deque((word, [] if n else list(ids)) for n, word in enumerate(words))
    return []


def _counted(req: StageRequest, texts: list[Text]) -> list[Chunk]:
    """Return what is passed on, as far as the request allows: each of its words is a token, whatever it was drawn
    as."""
    thought: NanoThinkerState = req.state
    words = re.findall(r"\s*\S+", "".join(one.text for one in texts))
    over = thought.num_output_tokens + len(words) - 1 - req.request.max_text_tokens
    if over <= 0 or not words:
        thought.num_output_tokens += max(0, len(words) - 1)
        return [*texts]
    thought.num_output_tokens = req.request.max_text_tokens
    return [Text("".join(words[:-over]), texts[0].start), *_finish(req, "length")]


def _flush(thought: NanoThinkerState) -> list[Text]:
    """The text that has become whole since the last time."""
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
    """The next word of a text that is spoken as it stands."""
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
    """Return how the network may go on: a call has known words, any other answer sayings, and both the user's words."""
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
