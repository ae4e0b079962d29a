"""Chunks: a misspelt field is an error where it is made, on the wire, and for who reads it; so is another dtype."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.chunk import (
    OUTPUTS,
    Audio,
    Bundle,
    Checkpoint,
    Chunk,
    Codes,
    Output,
    Speech,
    Tensors,
    Text,
    Transcript,
    bytes_of,
    kinds,
    texts,
)  # fmt: skip
from engine.deployment.config import ChunkSpec, StageSpec, WorkerSpec
from engine.errors import ConfigError, WireError
from engine.ipc import messages
from engine.worker.models.script import ScriptThinker
from engine.worker.process.stage_loader import build


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="family.position"):
    """Something that two stages of a family could exchange."""

    at: int
    latent: NDArray[np.float32]


def fed(chunk: dict[str, Any]) -> Any:
    """What the other end makes of a chunk that was written by hand."""
    return messages.decode(BY_HAND.encode({"t": "feed", "run": "r", "chunk": chunk}))


def written(array: Any) -> msgspec.msgpack.Ext:
    """An array as the wire has it."""
    feed = msgspec.msgpack.decode(messages.encode(messages.Feed("r", Tensors("x", {"a": array})))[4:])
    return feed["chunk"]["fields"]["a"]


BY_HAND = msgspec.msgpack.Encoder(enc_hook=written)


def test_what_is_written_as_it_should_be_is_read() -> None:
    assert fed({"t": "text", "text": "hi", "start": 3}) == messages.Feed("r", Text("hi", 3))
    sound = fed({"t": "audio", "wave": np.zeros(2, np.float32), "marks": [[2, 1]]}).chunk
    assert isinstance(sound, Audio)
    assert (sound.wave.tolist(), sound.text_end) == ([0, 0], 1)


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        ({"t": "text", "text": "hi", "strat": 3}, "unknown field `strat`"),
        ({"t": "text", "text": "hi"}, "missing required field `start`"),
        ({"t": "transcript", "text": "hi", "finale": True}, "unknown field `finale`"),
        ({"t": "text", "text": 5, "start": 0}, "Expected `str`"),
        ({"t": "txet", "text": "hi", "start": 0}, "Invalid value 'txet'"),
        ({"t": "audio", "wave": np.zeros(2, np.float64)}, "array of float32, not of float64"),
        ({"t": "speech", "pcm": np.zeros(2, np.float32)}, "array of int16, not of float32"),
        ({"t": "codes", "frames": [1, 2]}, "expected a NumPy array, not list"),
        ({"t": "usage", "finish": "bored"}, "Invalid enum value 'bored'"),
    ],
)  # fmt: skip
@pytest.mark.seed("A2.21", "A4.20")
def test_what_is_misspelt_is_refused_by_the_wire(chunk: dict[str, Any], why: str) -> None:
    with pytest.raises(WireError, match=why):
        fed(chunk)


@pytest.mark.parametrize("name", sorted(kinds(*get_args(Chunk))))
@pytest.mark.seed("A2.21", "A4.20")
def test_no_chunk_takes_a_field_that_it_does_not_have(name: str) -> None:
    (struct,) = (one for one in get_args(Chunk) if one.__struct_config__.tag == name)
    values: dict[str, Any] = dict.fromkeys(struct.__struct_fields__, 0)
    make: Any = struct
    assert make(**values).kind == (0 if struct is Tensors else name)
    with pytest.raises(TypeError):
        make(**values, mta=1)


def test_a_familys_struct_goes_as_tensors_and_is_itself_again() -> None:
    sent = Tensors.of(Position(7, np.ones(3, np.float32)))
    assert sent.kind == "family.position"
    assert kinds(Text, Position) == {"text", "family.position"}
    arrived = messages.decode(messages.encode(messages.Feed("r", sent))[4:])
    assert isinstance(arrived, messages.Feed)
    assert isinstance(arrived.chunk, Tensors)
    read = arrived.chunk.read(Position)
    assert (read.at, read.latent.tolist()) == (7, [1, 1, 1])


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"at": 7}, "missing required field `latent`"),
        ({"at": 7, "latnet": np.ones(3, np.float32), "latent": np.ones(3, np.float32)}, "unknown field `latnet`"),
        ({"at": 7, "latent": np.ones(3)}, "array of float32, not of float64"),
        ({"at": 7, "latent": [1.0]}, "expected a NumPy array"),
    ],
)
@pytest.mark.seed("A2.21", "A4.20")
def test_fields_that_are_not_the_structs_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        Tensors("family.position", fields).read(Position)


def test_pieces_begin_where_the_one_before_ends() -> None:
    assert list(texts(["one ", "", "two"])) == [Text("one ", 0), Text("", 4), Text("two", 4)]
    assert Text("two", 4).end == 7


def test_sound_without_marks_has_come_nowhere_in_the_text() -> None:
    assert Audio(np.zeros(3, np.float32)).text_end == 0


def test_what_a_chunk_keeps_is_counted() -> None:
    pcm = np.zeros(1000, np.int16)
    assert 2000 <= bytes_of(Speech(pcm)) < 3000
    assert 2000 <= bytes_of(Tensors("x", {"deep": {"pcm": pcm}})) < 3000
    assert 2000 <= bytes_of(Bundle({"main": (Codes(pcm[:, None]),)})) < 3000
    assert 5000 <= bytes_of(Text("a" * 5000, 0)) < 6000
    assert 2000 <= bytes_of(Checkpoint({"ring": pcm})) < 3000


def test_what_no_client_can_take_is_not_hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ScriptThinker.__init__

    def emitting(self: ScriptThinker, place: Any) -> None:
        made(self, place)
        self.info = msgspec.structs.replace(self.info, emits=kinds(Text, Checkpoint))

    monkeypatch.setattr(ScriptThinker, "__init__", emitting)
    spec = WorkerSpec(stages=("thinker",))
    task = messages.Task("w", (StageSpec(use="script.thinker", name="thinker"),), spec, "cpu", ChunkSpec(), 1.0)
    with pytest.raises(ConfigError, match="the stage thinker emits checkpoint, which cannot be sent to clients"):
        build(task, lambda message: None)


def test_clients_get_what_the_type_says() -> None:
    assert kinds(*get_args(Output)) == OUTPUTS
    assert Transcript("x").kind in OUTPUTS
