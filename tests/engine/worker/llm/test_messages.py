"""A request becomes the body of a chat completion, and each turn's prompt begins with the one before."""

import base64
import io
import itertools
import json
import wave
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import (
    AudioPart,
    ImagePart,
    Message,
    Request,
    Sampling,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VideoPart,
)
from engine.errors import RequestError
from engine.worker.llm.messages import TAKEN, body_of
from engine.worker.llm.options import SPOKEN, ChatServerOptions, options_of
from tests.cases.conversations import CALL, RESULT, SHAPES, assistant, system, user


def options(**fields: Any) -> ChatServerOptions:
    return options_of({"url": "http://127.0.0.1", "model": "m", "instructions_suffix": "", **fields})


def body(
    *messages: Message,
    said: TextPart | AudioPart | None = None,
    options_: ChatServerOptions | None = None,
    **fields: Any,
):
    return body_of(Request(id="r", session="s", messages=messages, **fields), options_ or options(), said)


CALLED = {"id": "c1", "type": "function", "function": {"name": "timer", "arguments": '{"minutes":5}'}}


def test_a_plain_request_is_asked_plainly() -> None:
    assert body(system("Be brief."), user("Hello"), max_text_tokens=99) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "reasoning_effort": "none",
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_a_line_that_asks_for_spoken_sentences_stands_behind_the_instructions() -> None:
    spoken = options_of({"url": "http://127.0.0.1", "model": "m"})
    assert body(system("Be brief."), user("Hello"), options_=spoken)["messages"][0] == {
        "role": "system",
        "content": f"Be brief.\n\n{SPOKEN}",
    }
    assert body(user("Hello"), options_=spoken)["messages"][0] == {"role": "system", "content": SPOKEN}


def test_thinking_is_left_to_the_server_only_where_an_option_says_so() -> None:
    assert (
        body(user("a"), options_=options(thinking=True)).keys().isdisjoint({"reasoning_effort", "chat_template_kwargs"})
    )


def test_a_model_that_its_server_would_unload_is_asked_to_stay() -> None:
    assert "keep_alive" not in body(user("a"))
    assert body(user("a"), options_=options(keep_alive="30m"))["keep_alive"] == "30m"


@pytest.mark.parametrize(
    ("sampling", "fields", "drawn"),
    [
        (Sampling(), {}, {}),
        (Sampling(), {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.7, "top_p": 0.9}),
        (Sampling(temperature=0.2, seed=7), {"temperature": 0.7}, {"temperature": 0.2, "seed": 7}),
        (Sampling(greedy=True, temperature=0.2, top_p=0.5, seed=7), {}, {"temperature": 0}),
        (Sampling(seed=-1), {}, {"seed": 2**31 - 1}),
        (Sampling(seed=2**31), {}, {"seed": 0}),
    ],
)
def test_how_tokens_are_drawn_is_said_where_somebody_says_it(sampling: Sampling, fields: Any, drawn: Any) -> None:
    asked = body(user("a"), sampling=sampling, options_=options(**fields))
    assert {name: asked[name] for name in ("temperature", "top_p", "seed") if name in asked} == drawn


def test_options_for_the_drawing_of_tokens_are_sent_by_each_name_that_servers_know() -> None:
    asked = body(user("a"), options_=options(top_k=20, min_p=0.1, repeat_penalty=1.1))
    assert (asked["top_k"], asked["min_p"]) == (20, 0.1)
    assert asked["repeat_penalty"] == asked["repetition_penalty"] == 1.1
    assert not {"top_k", "min_p", "repeat_penalty", "repetition_penalty"} & body(user("a")).keys()


@pytest.mark.parametrize(
    ("choice", "asked"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("timer", {"type": "function", "function": {"name": "timer"}}),
    ],
)
def test_tools_are_always_told_and_the_choice_with_them(choice: str, asked: Any) -> None:
    found = body(
        user("a"),
        tools=(ToolDefinition("timer", "Sets it.", {"type": "object"}), ToolDefinition("bare")),
        tool_choice=choice,
    )
    assert found["tools"][0] == {
        "type": "function",
        "function": {"name": "timer", "description": "Sets it.", "parameters": {"type": "object"}},
    }
    assert found["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert found["tool_choice"] == asked
    assert "tool_choice" not in body(user("a"), tool_choice=choice)


TIMER = ToolDefinition("timer", "Sets it.")


def test_a_model_without_tools_reads_no_schemas() -> None:
    asked = body(user("a"), tools=(TIMER,), options_=options(tools=False))
    assert asked == body(user("a"))


def test_a_model_without_tools_reads_results_as_notes() -> None:
    messages = (user("Set a timer."), assistant("One moment.", CALL), RESULT, assistant("Done."), user("Thanks."))
    asked = body(*messages, tools=(TIMER,), options_=options(tools=False))
    assert asked["messages"] == [
        {"role": "user", "content": "Set a timer."},
        {"role": "assistant", "content": "One moment."},
        {"role": "user", "content": "[Result of timer: done]"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Thanks."},
    ]


@pytest.mark.parametrize("messages", SHAPES.values(), ids=SHAPES)
def test_without_tools_every_conversation_fits_templates_without_tools(messages: tuple[Message, ...]) -> None:
    turns = body(*messages, options_=options(tools=False))["messages"]
    turns = turns[1:] if turns[0]["role"] == "system" else turns
    assert [turn["role"] for turn in turns] == [("user", "assistant")[n % 2] for n in range(len(turns))]
    assert turns[-1]["role"] == "user"
    assert all(turn.keys() == {"role", "content"} and turn["content"].strip() for turn in turns)


@pytest.mark.parametrize("choice", ["required", "timer"])
def test_a_required_call_is_refused_for_a_model_without_tools(choice: str) -> None:
    refusal = rf"tool_choice: '{choice}' requires a tool call, but m cannot .* tools: true"
    with pytest.raises(RequestError, match=refusal):
        body(user("a"), tools=(TIMER,), tool_choice=choice, options_=options(tools=False))


def test_messages_of_one_role_that_follow_each_other_are_one() -> None:
    found = body(user("a"), user("b", "c"), assistant("d"), assistant(CALL), RESULT, user("e"))["messages"]
    assert found == [
        {"role": "user", "content": "a\nb\nc"},
        {"role": "assistant", "content": "d", "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        TAKEN,
        {"role": "user", "content": "e"},
    ]


def test_all_instructions_stand_at_the_start() -> None:
    found = body(system("a"), user("b"), system("c"), user("d"))["messages"]
    assert found == [{"role": "system", "content": "a\n\nc"}, {"role": "user", "content": "b\nd"}]


def test_a_calls_result_stands_right_behind_it_and_a_call_without_one_is_left_out() -> None:
    found = body(user("a"), assistant(CALL), user("b"), RESULT)["messages"]
    assert [one["role"] for one in found] == ["user", "assistant", "tool", "assistant", "user"]
    unanswered = body(user("a"), assistant(CALL), user("b"))["messages"]
    assert unanswered == [{"role": "user", "content": "a\nb"}], "many templates refuse two of one role in a row"
    assert [one["role"] for one in body(RESULT, user("b"))["messages"]] == ["user"]


def test_calls_at_once_have_a_message_each_and_calls_with_one_id_keep_their_results() -> None:
    again = Message("tool", (ToolResultPart("c1", "again"),))
    found = body(user("a"), assistant(CALL), assistant(CALL), RESULT, again)["messages"]
    assert [one["tool_calls"] for one in found[1::2]] == [[CALLED], [CALLED]]
    assert [one["content"] for one in found[2::2]] == ["done", "again"]


def test_of_two_calls_with_one_id_and_one_result_the_second_is_left_out() -> None:
    found = body(user("a"), assistant(CALL, CALL), RESULT)["messages"]
    assert found[1]["tool_calls"] == [CALLED]
    assert [one["content"] for one in found[2:]] == ["done"]


@pytest.mark.parametrize("written", ["", "{", "[1]", "5", "[" * 5000])
def test_arguments_that_are_no_object_do_not_break_the_conversation(written: str) -> None:
    found = body(user("a"), assistant(ToolCallPart("timer", written, "c1")), RESULT)["messages"]
    assert json.loads(found[1]["tool_calls"][0]["function"]["arguments"]) == {"arguments": written}


# ---- sound ----

SOUND = AudioPart(np.arange(-800, 800, dtype=np.int16))


def test_what_was_said_takes_the_place_of_the_turns_sound() -> None:
    said = TextPart("what time is it")
    for messages in ((user("a"), assistant("b")), (user("a"), assistant("b"), user(SOUND))):
        assert body(*messages, said=said, live=True)["messages"][2:] == [{"role": "user", "content": "what time is it"}]
    assert body(user("Look:", SOUND), said=said)["messages"] == [{"role": "user", "content": "Look:\nwhat time is it"}]
    assert body(said=said)["messages"] == [{"role": "user", "content": "what time is it"}]


def test_sound_of_earlier_turns_is_told_by_its_transcript() -> None:
    heard = AudioPart(None, "hello")
    assert body(user(heard), assistant(AudioPart(None, "hi")), user("b"))["messages"][:2] == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
    ]


def test_sound_that_nobody_has_heard_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^m does not accept audio here, and the audio has no transcript\.$"):
        body(user(SOUND))


def test_a_model_that_hears_gets_the_sound() -> None:
    [message] = body(user("Listen:", SOUND), options_=options(audio=True))["messages"]
    [told, heard] = message["content"]
    assert told == {"type": "text", "text": "Listen:"}
    assert heard["input_audio"]["format"] == "wav"
    with wave.open(io.BytesIO(base64.b64decode(heard["input_audio"]["data"]))) as file:
        assert (file.getframerate(), file.getnchannels()) == (16000, 1)
        assert np.array_equal(np.frombuffer(file.readframes(1600), "<i2"), SOUND.pcm)
    live = body(user("Listen:"), said=SOUND, options_=options(audio=True))["messages"]
    assert live == [message]


# ---- pictures ----


@pytest.mark.parametrize(("width", "height"), [(64, 48), (33, 17), (1, 1)])
def test_a_model_that_sees_gets_the_picture(width: int, height: int) -> None:
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = 200
    [message] = body(user(ImagePart(pixels), "What is this?"), options_=options(images=True))["messages"]
    [shown, told] = message["content"]
    head, _, data = shown["image_url"]["url"].partition(",")
    assert head == "data:image/jpeg;base64"
    assert told["text"] == "What is this?"
    with av.open(io.BytesIO(base64.b64decode(data)), "r") as file:
        seen = next(file.decode(video=0)).to_ndarray(format="rgb24")
    assert seen.shape == pixels.shape
    assert np.abs(seen.astype(int) - pixels).max() < 12


def test_pictures_are_refused_by_a_model_that_sees_none() -> None:
    with pytest.raises(RequestError, match=r"does not accept images here.*images: true"):
        body(user(ImagePart(np.zeros((2, 2, 3), np.uint8))))
    with pytest.raises(RequestError, match="does not accept videos"):
        body(user(VideoPart(np.zeros((1, 2, 2, 3), np.uint8), 1.0)), options_=options(images=True))


# ---- the prefix ----

SPOKEN_TURN = st.text("ab \n", min_size=1, max_size=5).filter(str.strip)
TURN = st.one_of(
    st.tuples(SPOKEN_TURN, SPOKEN_TURN).map(lambda said: (user(said[0]), assistant(said[1]))),
    SPOKEN_TURN.map(lambda said: (user(said), assistant(CALL), RESULT, assistant("It is set."))),
    SPOKEN_TURN.map(lambda said: (user(AudioPart(None, said)), assistant("a"), assistant(CALL), RESULT)),
)


@given(st.lists(TURN, min_size=1, max_size=5), st.booleans())
def test_the_prompt_of_a_turn_begins_the_next_ones(turns: list[tuple[Message, ...]], told: bool) -> None:
    """Up to where the model answers: what it answers, and what follows, is added to what it has read."""
    whole = [message for turn in turns for message in turn]
    asked = [at for at, message in enumerate(whole, start=1) if message.role in ("user", "tool")]
    head = (system("Be brief."),) if told else ()
    prompts = [body(*head, *whole[:at])["messages"] for at in asked]
    for shorter, longer in itertools.pairwise(prompts):
        assert longer[: len(shorter)] == shorter
        assert len(longer) > len(shorter)
