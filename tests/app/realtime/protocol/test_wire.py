"""The wire, in and out, without a socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.media.images import MAX_IMAGE_BYTES
from app.realtime.protocol.client_events import ClientEvent, Received
from app.realtime.protocol.from_wire import MAX_AUDIO_CHARS, MAX_INPUTS, decode
from app.realtime.protocol.server_events import ResponseView, SpeechStoppedEvent
from app.realtime.protocol.to_wire import _ledger, encode
from app.refusal import Refusal


def test_how_likely_a_turn_was_over_is_ours_and_absent_where_a_fixed_silence_ended_it() -> None:
    stopped, fixed = (
        json.loads(encode(SpeechStoppedEvent("item_1", 500, probability))[0]) for probability in (0.98765, None)
    )
    assert stopped["parley"] == {"over_probability": 0.988}
    assert "parley" not in fixed
    silent = json.loads(encode(SpeechStoppedEvent("item_1", 500, turn_ms=320.0))[0])
    assert silent["parley"] == {"turn_ms": 320.0}
    numbered = json.loads(encode(SpeechStoppedEvent("item_1", 500, 0.5), numbers=iter([7]))[0])
    assert numbered["parley"] == {"over_probability": 0.5, "seq": 7}


def test_how_likely_a_turn_was_over_is_in_the_ledger() -> None:
    view = ResponseView("resp_1", None, options=None, ledger={"ears": 1.0}, ttfa_ms=1.0)  # pyright: ignore[reportArgumentType]
    assert "over_probability" not in _ledger(view)["ledger"]
    assert _ledger(msgspec.structs.replace(view, over_probability=0.75))["ledger"]["over_probability"] == 0.75
    assert _ledger(msgspec.structs.replace(view, turn_counts={"turns": 3}))["ledger"]["turns"] == {"turns": 3}


TYPES = [
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "output_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.retrieve",
    "conversation.item.truncate",
    "conversation.item.delete",
    "response.create",
    "response.cancel",
]
WORDS = [
    *("type", "event_id", "session", "audio", "item", "item_id", "content", "role", "text", "id", "output", "name"),
    *("content_index", "audio_end_ms", "response", "response_id", "input", "previous_item_id", "arguments", "call_id"),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from([*TYPES, "message", "user", "input_text", "input_audio", "input_image", "AAAA", "item_reference"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(WORDS), JSON, max_size=6))
@pytest.mark.fault("I2.3")
def test_any_event_is_a_command_or_a_refusal(type: str, fields: dict[str, Any]) -> None:
    told = decode(json.dumps({**fields, "type": type}))
    assert isinstance(told, Received)
    assert isinstance(told.event, ClientEvent | Refusal)


def shown(*parts: dict[str, str]) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": parts}}


@pytest.mark.fault("I2.1")
@pytest.mark.parametrize(
    ("most", "made", "param"),
    [
        pytest.param(64, lambda n: shown(*[{"type": "input_text", "text": "x"}] * n), "item.content", id="parts"),
        pytest.param(
            MAX_INPUTS,
            lambda n: {"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "i"}] * n}},
            "response.input",
            id="items of an answer",
        ),
        pytest.param(
            MAX_AUDIO_CHARS, lambda n: {"type": "input_audio_buffer.append", "audio": "A" * n}, "audio", id="sound"
        ),
        pytest.param(
            MAX_IMAGE_BYTES * 4 // 3 + 64,
            lambda n: shown({"type": "input_image", "image_url": "x" * n}),
            "item.content[0].image_url",
            id="a picture",
        ),
    ],
)
def test_as_much_as_may_be_is_taken_and_no_more(most: int, made: Callable[[int], dict[str, Any]], param: str) -> None:
    assert isinstance(decode(json.dumps(made(most))).event, ClientEvent)
    refusal = decode(json.dumps(made(most + 4))).event  # base64 comes in fours
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.param) == ("invalid_value", param)


@given(st.text(max_size=200))
@pytest.mark.fault("I2.1")
def test_any_text_is_a_command_or_a_refusal(text: str) -> None:
    assert isinstance(decode(text).event, ClientEvent | Refusal)


@pytest.mark.parametrize("type", TYPES)
def test_every_client_event_of_the_protocol_is_known(type: str) -> None:
    word = decode(json.dumps({"type": type})).event
    assert not isinstance(word, Refusal) or word.code == "missing_required_parameter"


@pytest.mark.fault("I2.2")
def test_duplicate_keys_are_the_last_of_them() -> None:
    told = decode('{"type":"response.cancel","type":"input_audio_buffer.clear","event_id":"a","event_id":"b"}')
    assert told.event_id == "b"
    assert type(told.event).__name__ == "ClearAudio"


def test_a_message_is_never_repeated_back_at_length() -> None:
    word = decode(json.dumps({"type": "x" * 100_000})).event
    assert isinstance(word, Refusal)
    assert len(str(word)) < 200
