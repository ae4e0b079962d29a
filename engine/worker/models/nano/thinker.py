"""The thinker of nano: text and tool results in, text and tool calls out; numpy and ONNX Runtime only.

Tokens are the 128 characters of ASCII and, from 256 on, marks that no user's text can contain. What users say is folded
to plain words first (``normalise``): one form for typed and for heard requests. Before each of the user's words stands
that word's own mark; in an answer the mark means the word, so that repeating is pointing (pointer networks,
arXiv:1506.03134). The model was trained on templated dialogues (engine/training/nano); it converses about nothing else.

It knows no audio, no socket and no other stage.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from engine.core import (
    AudioPart,
    Chunk,
    Message,
    StageInfo,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from engine.errors import EngineError, WeightsError
from engine.worker.models.nano.eyes import Eyes
from engine.worker.models.nano.scene import Scene, told
from engine.worker.models.nano.sight import Sight, joined, shows
from engine.worker.plain import ascii_text, normalise
from engine.worker.prefix import Prefixes
from engine.worker.sampling import draw
from engine.worker.stage import Place, Seat

CONTEXT = 512
"""Positions of one conversation, prompt and answer together."""
USER, BOT, END, TOOL, RESULT, UNHEARD, IMAGE, SCRATCH = range(256, 264)
"""Marks: who speaks, where an answer ends, a tool's name, its result, unintelligible speech, a picture, and the first
of ten scratch digits, in which the model computes before it says a number."""
SPELL = SCRATCH + 10
"""The characters that follow are said one by one: "b, e, e"."""
WORD, WORDS = SPELL + 1, 32
"""The first of the marks of the user's words, and how many words have one."""
VOCABULARY = WORD + WORDS
ANSWER_ROOM = 160
"""Positions kept free for the answer."""
PIECE = 128
"""The most ids that one step prefills for a request: about 10 ms."""
REMEMBER_MB = 64
"""Of what was computed for sessions that may go on, unless the options say otherwise: a full conversation takes 2."""
TEMPERATURE, TOP_P = 0.7, 0.9
"""Where the request leaves them open. What the model is sure of is then certain; coins still fall both ways."""
BLIND = "I cannot see pictures yet."
"""What the network was taught to say when it is asked about a picture. It reads no scenes: the eyes answer for it."""
WEIGHTS = Path(__file__).parents[3] / "weights" / "nano"


@dataclass(frozen=True, slots=True)
class Known:
    """What was computed for a conversation: ``keys`` and ``values`` [layers, n, kv], and the ``ends`` to go on from."""

    keys: NDArray[np.float32]
    values: NDArray[np.float32]
    ends: Sequence[tuple[int, NDArray[np.float32]]]

    @property
    def size(self) -> int:
        return self.keys.nbytes + self.values.nbytes + sum(tails.nbytes for _, tails in self.ends)


@dataclass(slots=True)
class Thought:
    """One answer on its way.

    ``pending`` ids go into the network next; ``words`` are those that the user spoke; ``script`` is text to be spoken
    as it stands; ``scene`` is what the user's turn shows. Of the ``answer``'s ids ``flushed`` have been passed on, of
    its text ``said`` characters.
    """

    pending: list[int] = field(default_factory=list[int])
    prompt: list[int] = field(default_factory=list[int])
    words: Sequence[str] = ()
    script: deque[str] = field(default_factory=deque[str])
    answer: list[int] = field(default_factory=list[int])
    tool: str | None = None
    scene: Scene | None = None
    said: int = 0
    flushed: int = 0
    fed: int = 0
    made: int = 0
    known: list[tuple[int, NDArray[np.float32]]] = field(default_factory=list[tuple[int, NDArray[np.float32]]])
    """Positions from which a later request can go on: how many, and what the convolutions remembered there."""


@dataclass(frozen=True, slots=True)
class Sensed:
    """The stage's row: what was heard (None: nothing was spoken, "": it was not understood), and what was seen.

    ``messages`` is the conversation, ``scene`` what the last of them shows, None where that is no picture.
    """

    heard: str | None
    messages: tuple[Message, ...]
    scene: Scene | None


class Thinker:
    """The stage: a row is what was heard and seen; out go words, tool calls and the usage."""

    def __init__(self, place: Place, now: Callable[[], datetime] = datetime.now, sight: Sight | None = None) -> None:
        self.info = StageInfo(
            name="thinker", order=1, emits=frozenset({"text", "tool_call", "usage"}), feeds=frozenset({"text"}),
            keeps=frozenset({"text"}), slots=place.slots,
        )  # fmt: skip
        self._net = Network((place.weights or WEIGHTS) / "thinker.onnx", place.slots, place.threads)
        self._sight = sight or Sight(Eyes(place.weights or WEIGHTS, place.threads))
        self._now = now
        self.prefixes: Prefixes[Known] = Prefixes(int(float(place.options.get("remember_mb", REMEMBER_MB)) * 2**20))

    def open(self, seat: Seat) -> None:
        seat.state = Thought()

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """One row, once the user has finished; pictures are looked at beside the step loop while he speaks."""
        messages = joined(seat.request.messages)
        scene = None
        if shows(messages[-1:]):
            (scene,) = await asyncio.to_thread(self._sight.scenes, seat.request.session, messages[-1:])
        heard = "" if seat.request.hears else None
        async for chunk in inputs:
            if chunk.kind == "heard" and chunk.meta["final"]:
                heard = chunk.data if chunk.meta["understood"] else ""
        yield Sensed(heard, messages, scene)

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        """One decode step of all seats together, or one piece of prefill for those that have just begun."""
        for seat in seats:
            if seat.rows:
                self._begin(seat, seat.rows.popleft())
        decoding = [seat for seat in seats if len(seat.state.pending) == 1]
        batches = [[seat] for seat in seats if len(seat.state.pending) > 1] + [decoding] * bool(decoding)
        said: dict[int, list[Chunk]] = {}
        for batch in batches:
            ids = [seat.state.pending[:PIECE] for seat in batch]
            logits = self._net.advance([s.slot for s in batch], ids, [s.state.fed for s in batch])
            for seat, fed, row in zip(batch, ids, logits, strict=True):
                said[seat.slot] = self._advanced(seat, len(fed), row)
        return [said[seat.slot] if seat.slot in said else _recite(seat) for seat in seats]

    def _begin(self, seat: Seat, sensed: Sensed) -> None:
        seat.hungry = False
        messages, heard = sensed.messages, sensed.heard
        if messages and messages[-1].role == "assistant" and heard is None:
            _say(seat.state, "".join(part.text for part in messages[-1].parts if isinstance(part, TextPart)))
        else:
            seat.state.prompt = prompt_ids(messages, heard)
            seat.state.scene = sensed.scene
            seat.state.words = last_words(messages, heard)
            self._recall(seat)

    def _recall(self, seat: Seat) -> None:
        """Take over what is known of the prompt; its last id at least goes through the network for its logits."""
        thought: Thought = seat.state
        found = self.prefixes.find(seat.request.session, thought.prompt)
        if found is not None:
            shared, known = found
            usable = [(n, tails) for n, tails in known.ends if n <= min(shared, len(thought.prompt) - 1)]
            if usable:
                thought.fed, tails = usable[-1]
                thought.known = usable
                self._net.restore(seat.slot, thought.fed, known, tails)
        thought.pending = thought.prompt[thought.fed :]

    def _remember(self, seat: Seat) -> None:
        """Keep what the network has been fed for the session's next request."""
        thought: Thought = seat.state
        thought.known = [*thought.known, (thought.fed, self._net.tails(seat.slot))]
        known = self._net.known(seat.slot, thought.fed, thought.known)
        self.prefixes.keep(seat.request.session, (thought.prompt + thought.answer)[: thought.fed], known, known.size)

    def _advanced(self, seat: Seat, count: int, logits: NDArray[np.float32]) -> list[Chunk]:
        thought: Thought = seat.state
        thought.fed += count
        thought.pending = thought.pending[count:]
        if thought.pending:
            return []
        if not thought.made:
            self._remember(seat)
        drawn = draw(np.where(_SAYABLE, logits, -np.inf), seat.request.sampling, thought.made, TEMPERATURE, TOP_P)
        thought.made += 1
        chunks = self._take(seat, drawn)
        full = thought.made >= seat.request.max_text_tokens or thought.fed + len(thought.pending) >= CONTEXT
        return [*chunks, *_finish(seat, "length")] if full and not seat.done else chunks

    def _take(self, seat: Seat, drawn: int) -> list[Chunk]:
        """Act on a drawn id: a word is passed on when it is whole, a tool is called at the end of its name."""
        thought: Thought = seat.state
        thought.pending = [drawn]
        if drawn == END:
            if thought.tool is not None:
                return self._call(seat, thought.tool)
            self._remember(seat)
            if thought.scene is not None and shown(thought.answer) == BLIND:
                return _say(thought, told(thought.scene))
            return _finish(seat, "stop")
        if drawn >= WORD:
            chunks = _flush(thought)
            thought.answer.append(drawn)
            return chunks + _flush(thought)
        thought.answer.append(drawn)
        if drawn == TOOL:
            thought.tool = ""
        elif thought.tool is not None:
            thought.tool += chr(drawn) if drawn < 128 else ""
        elif drawn == ord(" ") or SPELL in thought.answer:
            return _flush(thought)
        return []

    def _call(self, seat: Seat, name: str) -> list[Chunk]:
        """Hand the call to a client that declared the tool; else ask the clock and go on."""
        thought: Thought = seat.state
        if seat.request.tool_choice != "none" and any(tool.name == name for tool in seat.request.tools):
            call = Chunk("tool_call", {"name": name, "arguments": "{}"}, {"call_id": f"call_{seat.request.id}"})
            thought.answer = []
            return [call, *_finish(seat, "tool")]
        told = result_ids(clock(name, self._now()))
        thought.tool = None
        thought.answer += [END, *told]
        thought.pending += told
        return []


def clock(tool: str, now: datetime) -> str:
    """What the built-in tools return: get_time "9:05", get_date "Saturday, November 21, 2026"."""
    if tool == "get_date":
        return f"{now:%A, %B} {now.day}, {now.year}"
    return f"{now.hour}:{now.minute:02}" if tool == "get_time" else "unknown"


def shown(ids: Sequence[int], words: Sequence[str] = ()) -> str:
    """The text of an answer's ids: marks of words as those ``words``, tools and scratch left out."""
    text, silent, spelling = "", False, False
    for i in ids:
        silent = i == TOOL or (silent and i != BOT)
        spelling = spelling or i == SPELL
        if silent or 128 <= i < WORD:
            continue
        space = " " if text and not text.endswith(" ") else ""
        if i >= WORD:
            text += space + words[i - WORD] if i - WORD < len(words) else ""
        else:
            text += f",{space}{chr(i)}" if spelling and text else chr(i)
    return text


def _say(thought: Thought, text: str) -> list[Chunk]:
    """The text as it stands, in place of what was answered so far."""
    thought.answer, thought.pending = [], []
    thought.script = deque(re.findall(r"\S+\s*", text))
    return []


def _flush(thought: Thought) -> list[Chunk]:
    """The text that has become whole since the last time; what may become BLIND waits where there is a scene."""
    whole = shown(thought.answer, thought.words)
    text = whole[thought.said :]
    if not text or (thought.scene is not None and BLIND.startswith(whole)):
        return []
    ids = thought.answer[thought.flushed :]
    thought.said, thought.flushed = thought.said + len(text), len(thought.answer)
    return [Chunk("text", text, {"ids": ids})]


def _finish(seat: Seat, why: str) -> list[Chunk]:
    thought: Thought = seat.state
    seat.done = True
    counts: dict[str, Any] = {"input_tokens": len(thought.prompt), "output_tokens": thought.made}
    if seat.request.dump:
        counts["prompt_ids"] = thought.prompt
    return [*_flush(thought), Chunk("usage", counts, {"finish": why})]


def _recite(seat: Seat) -> list[Chunk]:
    """The next word of a text that is spoken as it stands."""
    thought: Thought = seat.state
    if not thought.script:
        return _finish(seat, "stop")
    word = thought.script.popleft()
    return [Chunk("text", word, {"ids": text_ids(ascii_text(word))})]


_SAYABLE = np.zeros(VOCABULARY, bool)
_SAYABLE[[*range(32, 127), END, TOOL, *range(SCRATCH, VOCABULARY)]] = True


class Network:
    """The exported decoder and the state of ``slots`` conversations.

    ``keys`` and ``values`` [slots, layers, CONTEXT, kv] float32; ``tails`` [slots, layers, taps - 1, mixed], the last
    inputs of the convolutions.
    """

    def __init__(self, path: Path, slots: int, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_mem_pattern = False  # every step has a new shape
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's own errors have no common base
            raise WeightsError(f"{path} cannot be loaded as nano's thinker ({error}); restore the file") from error
        sizes: dict[str, list[int]] = {entry.name: entry.shape for entry in self._session.get_inputs()}
        layers, kv = sizes["keys"][1], sizes["keys"][3]
        self._keys = np.zeros((slots, layers, CONTEXT, kv), np.float32)
        self._values = np.zeros_like(self._keys)
        self._tails = np.zeros((slots, *sizes["tails"][1:]), np.float32)

    def tails(self, slot: int) -> NDArray[np.float32]:
        """A copy of what the convolutions remember."""
        return self._tails[slot].copy()

    def known(self, slot: int, length: int, ends: Sequence[tuple[int, NDArray[np.float32]]]) -> Known:
        """A copy of the first ``length`` positions of a slot."""
        return Known(self._keys[slot, :, :length].copy(), self._values[slot, :, :length].copy(), tuple(ends))

    def restore(self, slot: int, length: int, known: Known, tails: NDArray[np.float32]) -> None:
        """Begin a slot with the first ``length`` positions of what is known."""
        self._keys[slot, :, :length] = known.keys[:, :length]
        self._values[slot, :, :length] = known.values[:, :length]
        self._tails[slot] = tails

    def advance(
        self, slots: Sequence[int], ids: Sequence[Sequence[int]], lengths: Sequence[int]
    ) -> NDArray[np.float32]:
        """Feed equally many ids to each slot, which holds ``lengths`` positions already: logits [B, VOCABULARY]."""
        past = max(lengths)
        for slot, length in zip(slots, lengths, strict=True):
            self._tails[slot] *= length > 0
        feeds = {
            "ids": np.asarray(ids, np.int64),
            "keys": self._keys[slots, :, :past],
            "values": self._values[slots, :, :past],
            "tails": self._tails[slots],
            "lengths": np.asarray(lengths, np.int64),
        }
        logits, keys, values, tails = cast("list[NDArray[np.float32]]", self._session.run(None, feeds))
        for i, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            end = length + len(ids[i])
            self._keys[slot, :, length:end] = keys[i]
            self._values[slot, :, length:end] = values[i]
        self._tails[slots] = tails
        return logits


def prompt_ids(messages: tuple[Message, ...], heard: str | None = None) -> list[int]:
    """The conversation as ids, ending with BOT: the newest turns that leave ANSWER_ROOM.

    ``heard`` is what the last user's speech was understood as ("" if not at all). System messages are left out:
    nano cannot follow instructions.
    """
    turns: list[list[int]] = [[]]
    for message in messages:
        if message.role == "user":
            words = f"{_user_text(message)} {(heard if message is messages[-1] else None) or ''}"
            turns.append(user_ids(words, shows([message])))
        elif message.role == "assistant":
            turns[-1] += _assistant_ids(message, opened=turns[-1][-1:] == [BOT])
        elif message.role == "tool":
            for part in message.parts:
                turns[-1] += result_ids(part.output) if isinstance(part, ToolResultPart) else []
    if heard is not None and (not messages or messages[-1].role != "user"):
        turns.append(user_ids(heard))
    ids = [i for turn in _window(turns) for i in turn]
    return ids if ids[-1:] == [BOT] else [*ids, BOT]


def _window(turns: list[list[int]]) -> list[list[int]]:
    """The newest turns that leave ANSWER_ROOM.

    Where they get too long, a third of the room is made free at once: the window's beginning, and with it what is
    known of it, then stays for some turns.
    """
    room, first, held = CONTEXT - ANSWER_ROOM, 0, 0
    for n, turn in enumerate(turns):
        held += len(turn)
        if held > room:
            while first < n and held > room * 2 // 3:
                held -= len(turns[first])
                first += 1
    return turns[first:]


def user_ids(text: str, image: bool = False) -> list[int]:
    """A user's turn up to the mark where the answer begins; no words and no picture are unheard speech."""
    content = [IMAGE] * image
    for number, word in enumerate(user_words(text)):
        content += [WORD + number if number < WORDS else ord(" "), *text_ids(word)]
    return [USER, *(content or [UNHEARD]), BOT]


def user_words(text: str) -> list[str]:
    """The words that the marks of a user's turn stand for, as many as fit."""
    return normalise(text)[: CONTEXT - ANSWER_ROOM - 4].split()


def last_words(messages: tuple[Message, ...], heard: str | None = None) -> list[str]:
    """The words that an answer can point at, without quotation marks."""
    asked = [message for message in messages if message.role == "user"][-1:]
    if heard is not None and messages and messages[-1].role != "user":
        asked = []
    text = _user_text(asked[0]) if asked else ""
    return [word.replace('"', "") for word in user_words(f"{text} {heard or ''}")]


def result_ids(output: str) -> list[int]:
    """A tool's result, JSON reduced to its values, up to the mark where the answer begins."""
    values = re.sub(r'"\w+"\s*:|[{}\[\]"]', " ", ascii_text(output))
    return [RESULT, *text_ids(" ".join(values.split())[:120]), BOT]


def text_ids(text: str) -> list[int]:
    """One id a character; what is not ASCII is dropped, so text never becomes a mark."""
    return [code for code in map(ord, text) if code < 128]


def _user_text(message: Message) -> str:
    return " ".join(
        part.text if isinstance(part, TextPart) else part.transcript or ""
        for part in message.parts
        if isinstance(part, TextPart | AudioPart)
    )


def _assistant_ids(message: Message, opened: bool) -> list[int]:
    ids = list(message.token_ids)
    if not ids:
        for part in message.parts:
            ids += [TOOL, *text_ids(part.name), END] if isinstance(part, ToolCallPart) else []
            ids += text_ids(ascii_text(part.text)) if isinstance(part, TextPart) else []
    closed = ids if ids[-1:] == [END] else [*ids, END]
    return closed if opened else [BOT, *closed]
