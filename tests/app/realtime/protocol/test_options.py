"""How a partial change is merged into a session's settings."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.realtime.protocol.options import SemanticVad, ServerVad, SessionOptions, response_options, session_options
from app.refusal import Refusal

DEFAULT = SessionOptions(model="m")


def changed(**patch: Any) -> SessionOptions:
    return session_options(DEFAULT, patch)[0]


def detection(options: SessionOptions, value: Any) -> SessionOptions:
    return session_options(options, {"audio": {"input": {"turn_detection": value}}})[0]


def test_only_what_is_named_changes() -> None:
    options = changed(audio={"output": {"speed": 1.5}})
    assert options.audio.output.speed == 1.5
    assert options.audio.input == DEFAULT.audio.input
    assert changed() == DEFAULT


def test_as_many_tools_as_may_be_are_taken_and_names_as_long() -> None:
    def tools(count: int, size: int) -> list[dict[str, str]]:
        return [{"type": "function", "name": "f" * size}] * count

    assert len(changed(tools=tools(128, 128)).tools) == 128
    for count, size in ((129, 1), (1, 129)):
        with pytest.raises(Refusal, match="128"):
            changed(tools=tools(count, size))


def test_null_clears_where_it_means_something_and_is_absent_elsewhere() -> None:
    options = changed(audio={"input": {"transcription": {"model": "whisper-1"}}}, instructions="x")
    after, _ = session_options(
        options, {"instructions": None, "audio": {"input": {"transcription": None}, "output": None}}
    )
    assert after.instructions == "x"
    assert after.audio.input.transcription is None
    assert after.audio.output == options.audio.output
    assert detection(options, None).audio.input.turn_detection is None


def test_turn_detection_merges_within_its_kind_and_starts_afresh_in_another() -> None:
    quick = detection(DEFAULT, {"type": "server_vad", "silence_duration_ms": 200})
    both = detection(quick, {"threshold": 0.7})
    assert both.audio.input.turn_detection == ServerVad(silence_duration_ms=200, threshold=0.7)
    other = detection(both, {"type": "semantic_vad"})
    assert other.audio.input.turn_detection == SemanticVad()
    assert detection(detection(other, None), {"type": "server_vad"}).audio.input.turn_detection == ServerVad()


def test_unknown_fields_are_named_and_the_model_stays() -> None:
    options, unknown = session_options(DEFAULT, {"model": "other", "x": 1, "audio": {"y": 2, "input": {"z": {}}}})
    assert options == DEFAULT
    assert unknown == ["session.x", "session.audio.y", "session.audio.input.z"]


def test_what_is_not_done_is_not_echoed() -> None:
    """A transcription's delay, and what is to be told beside a transcript: nothing is made of them."""
    heard = {"model": "whisper-1", "delay": "low"}
    options, unknown = session_options(
        DEFAULT, {"include": ["item.input_audio_transcription.logprobs"], "audio": {"input": {"transcription": heard}}}
    )
    shown = msgspec.to_builtins(options)
    assert shown["include"] is None
    assert shown["audio"]["input"]["transcription"] == {"model": "whisper-1"}
    assert [name.rpartition(".")[2] for name in unknown] == ["include", *list(heard)[1:]]
    assert session_options(DEFAULT, {"include": None}) == (DEFAULT, [])


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ({"modalities": ["text"]}, "session.modalities is session.output_modalities"),
        ({"type": "realtime", "voice": "alloy"}, "session.voice is session.audio.output.voice"),
        ({"turn_detection": None, "instructions": "x"}, "session.turn_detection is session.audio.input.turn_detection"),
        (
            {"input_audio_format": "pcm16", "max_response_output_tokens": 5},
            "session.input_audio_format is session.audio.input.format, "
            "session.max_response_output_tokens is session.max_output_tokens",
        ),
    ],
)
def test_the_betas_shape_is_refused_in_a_sentence_that_names_the_new_one(patch: dict[str, Any], told: str) -> None:
    with pytest.raises(Refusal, match=re.escape(told)) as refused:
        session_options(DEFAULT, patch)
    assert refused.value.code == "beta_api_shape_disabled"
    assert ". " not in str(refused.value)


def test_the_betas_fields_beside_gas_are_unknown_ones_like_any_other() -> None:
    """Some clients send both; answers are told the same."""
    options, unknown = session_options(DEFAULT, {"voice": "x", "audio": {"output": {"voice": "y"}}, "temperature": 0.8})
    assert (options.audio.output.voice, unknown) == ("y", ["session.voice", "session.temperature"])
    with pytest.raises(Refusal, match=r"response\.voice is response\.audio\.output\.voice"):
        response_options(DEFAULT, {"voice": "alloy"})


@pytest.mark.parametrize(
    ("patch", "param"),
    [
        ({"audio": 5}, "session.audio"),
        ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 8000}}}}, "session.audio.input.format.rate"),
        ({"audio": {"input": {"format": {"type": "audio/mp3"}}}}, "session.audio.input.format.type"),
        ({"audio": {"output": {"speed": 9}}}, "session.audio.output.speed"),
        ({"tools": [{"type": "function"}]}, "session.tools[0]"),
        ({"max_output_tokens": 0}, "session.max_output_tokens"),
    ],
)
def test_what_is_wrong_is_named(patch: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as refused:
        session_options(DEFAULT, patch)
    assert refused.value.param == param


def test_an_answer_takes_the_sessions_settings_and_its_own() -> None:
    options = changed(instructions="x", audio={"output": {"voice": "a"}})
    answer, unknown = response_options(options, {"output_modalities": ["text"], "metadata": {"k": "v"}, "odd": 1})
    assert (answer.instructions, answer.voice, answer.speaks) == ("x", "a", False)
    assert answer.metadata == {"k": "v"}
    assert unknown == ["response.odd"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10_000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "audio", "input", "output", "format", "rate", "voice", "tools"]), inner
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*SessionOptions.__struct_fields__, "odd"]), JSON, max_size=4))
def test_any_patch_is_merged_or_refused(patch: dict[str, Any]) -> None:
    try:
        options, _ = session_options(DEFAULT, patch)
    except Refusal:
        return
    assert msgspec.convert(msgspec.to_builtins(options), SessionOptions) == options
