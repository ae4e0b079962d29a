"""What servers send as answers becomes one shape: text, thoughts, calls, usage, and one finish."""

import json
from typing import Any

import pytest

from engine.chunk import Finish, Text, ToolCall, ToolCallDelta, Usage
from engine.errors import StageFailed
from engine.worker.llm import decoder as module
from engine.worker.llm.decoder import DONE, ChatStreamDecoder
from engine.worker.llm.deltas import Delta, ReasoningDelta
from engine.worker.remote.refusals import ServerRefusal
from tests.engine.worker.llm.scripted import call, delta, text


def decoded(*events: Any) -> list[Delta]:
    decoder = ChatStreamDecoder("r")
    fed = [one for event in events for one in decoder.feed(event if isinstance(event, str) else json.dumps(event))]
    return fed + decoder.end()


def calls(*events: Any) -> list[tuple[str, str, str]]:
    found = [one for one in decoded(*events, delta("tool_calls")) if isinstance(one, ToolCall)]
    return [(one.call_id, one.name, one.arguments) for one in found]


def test_an_answer_is_its_text_then_its_usage_then_its_finish() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
    events = [delta(role="assistant", content=""), text("Good "), text("day", "stop"), {"choices": [], "usage": usage}]
    assert decoded(*events, DONE) == [
        Text("Good ", 0),
        Text("day", 5),
        Usage(input_tokens=7, output_tokens=2, cached_tokens=5),
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_come_in_fields_of_their_own_too(field: str) -> None:
    assert decoded(delta(**{field: "Hm."}), text("Yes", "stop")) == [*(ReasoningDelta("Hm."), Text("Yes", 0), Usage())]


def test_usage_with_every_event_is_told_once_the_last_one() -> None:
    growing = [{**text("a"), "usage": {"prompt_tokens": 3, "completion_tokens": n}} for n in (1, 2)]
    assert decoded(*growing, DONE)[-2:] == [Text("a", 1), Usage(input_tokens=3, output_tokens=2)]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "prompt_tokens_details": None}])
def test_usage_that_says_nothing_is_taken(usage: Any) -> None:
    assert decoded({**text("a", "stop"), "usage": usage})[-1] == Usage()


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "stop"), ("length", "length"), ("eos", "stop"), ("content_filter", "stop")]
)
def test_reasons_that_are_not_known_are_stops(reason: str, told: Finish) -> None:
    assert decoded(text("a", reason))[-1] == Usage(finish=told)


def test_a_whole_body_in_the_place_of_a_stream_is_one_event() -> None:
    message = {"role": "assistant", "content": "Good day", "tool_calls": None}
    body = {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]}
    assert decoded(body) == [Text("Good day", 0), Usage()]


def test_content_may_be_a_list_of_parts() -> None:
    assert decoded(delta(content=[{"type": "text", "text": "a"}, {"type": "thinking"}, 3]), DONE)[0] == Text("a", 0)


def test_a_call_in_pieces_is_told_as_it_comes_and_then_whole() -> None:
    events = [call("", index=0, id="c1", name="timer"), call('{"min', index=0), call('utes":5}', index=0)]
    assert decoded(*events, delta("tool_calls")) == [
        ToolCallDelta("c1", "timer", '{"min'),
        ToolCallDelta("c1", "timer", 'utes":5}'),
        ToolCall("c1", "timer", '{"minutes":5}'),
        Usage(finish="tool"),
    ]


@pytest.mark.parametrize(
    ("events", "whole"),
    [
        (
            [call("{", index=1, id="b", name="two"), call("{", index=0, id="a", name="one"), call("}", index=1),
             call("}", index=0)],
            [("b", "two", "{}"), ("a", "one", "{}")],
        ),
        ([call("{}", name="one"), call("{}", name="two")], [("call_r_0", "one", "{}"), ("call_r_1", "two", "{}")]),
        ([call("{", name="one"), call("}")], [("call_r_0", "one", "{}")]),
        ([call("{", id="a", name="one"), call("}", id="a")], [("a", "one", "{}")]),
        (
            [call("{}", index=0, id="a", name="one"), call("{}", index=0, id="b", name="two")],
            [("a", "one", "{}"), ("b", "two", "{}")],
        ),
        ([call("{", index=0, id="a", name="one"), call("}", index=0, id="a", name="one")], [("a", "one", "{}")]),
        ([call("{", index=0, id="a", name="one"), call("}", index=0, id="z", name="")], [("a", "one", "{}")]),
        ([call("{}", index=0), call(index=0, name="one")], [("call_r_0", "one", "{}")]),
        ([call(index=0, id="a", name="one")], [("a", "one", "{}")]),
        (
            [call("{}", index=0, id="a", name="one"), call("{}", index=1, id="a", name="two")],
            [("a", "one", "{}"), ("call_r_1", "two", "{}")],
        ),
    ],
    ids=[
        "out of order", "whole, without index and id", "pieces, without index and id", "pieces by id",
        "all with one index", "the name with each piece", "another id with each piece", "the name last", "no arguments",
        "all with one id",
    ],
)  # fmt: skip
def test_calls_are_put_together_however_they_come(events: list[Any], whole: list[tuple[str, str, str]]) -> None:
    assert calls(*events) == whole


def test_pieces_of_another_call_wait_until_the_first_is_whole() -> None:
    mixed = [call('{"x"', index=0, id="a", name="one"), call("{}", index=1, id="b", name="two"), call(":1}", index=0)]
    assert decoded(*mixed, DONE) == [
        *(ToolCallDelta("a", "one", '{"x"'), ToolCallDelta("a", "one", ":1}")),
        *(ToolCall("a", "one", '{"x":1}'), ToolCall("b", "two", "{}"), Usage(finish="tool")),
    ]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([call("", index=0, id="a", name="one")], []),
        ([call('{"x":', index=0, id="a", name="one")], [ToolCallDelta("a", "one", '{"x":')]),
        ([call("", index=0, id="a")], []),
        (
            [call("{}", index=0, id="a", name="one"), call('{"x', index=1, id="b", name="two")],
            [ToolCall("a", "one", "{}")],
        ),
        ([call("{}", index=0, id="a", name="one")], [ToolCall("a", "one", "{}")]),
    ],
    ids=["before its arguments", "in its arguments", "before its name", "the second", "behind it"],
)
def test_a_call_that_the_limit_cuts_off_is_never_told_as_whole(events: list[Any], told: list[Delta]) -> None:
    assert decoded(*events, delta("length")) == [*told, Usage(finish="length")]


def test_arguments_that_are_an_object_become_json() -> None:
    whole = delta(tool_calls=[{"id": "a", "function": {"name": "one", "arguments": {"x": 1}}}])
    assert calls(whole) == [("a", "one", '{"x":1}')]


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([text("half")], "before it was complete"),
        ([], "before it was complete"),
        ([delta(reasoning="Hm."), delta("length")], "its whole answer on thinking"),
        (["no json"], "is not a chat completion"),
        (["[]"], "is not a chat completion"),
        (["{}", '{"choices": 5}'], "is not a chat completion"),
        (["[" * 100_000], "is not a chat completion"),
        ([call("{}", index=0), DONE], "without a name"),
        ([call("{}", index=n, name="f") for n in range(65)], "more than 64"),
    ],
)
def test_what_is_no_answer_is_one_error(events: list[Any], error: str) -> None:
    with pytest.raises(StageFailed, match=error):
        decoded(*events)


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_ANSWER", 10)
    for event in (text("a" * 6), delta(reasoning="a" * 6), call("a" * 6, index=0, name="f")):
        with pytest.raises(StageFailed, match="longer than 10"):
            decoded(event, event)


@pytest.mark.parametrize(
    ("event", "status", "said"),
    [
        ({"error": {"code": 400, "message": "too long"}}, 400, "too long"),
        ({"error": {"code": "rate_limit", "message": "slow"}}, 500, "slow"),
        ({"error": "boom"}, 500, "boom"),
        ({"object": "error", "message": "bad", "code": 503}, 503, "bad"),
        ({"error": {}}, 500, ""),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, 500, ""),
    ],
)
def test_an_error_in_the_stream_is_a_refusal(event: Any, status: int, said: str) -> None:
    with pytest.raises(ServerRefusal) as caught:
        decoded(text("a"), event)
    assert (caught.value.status, caught.value.said) == (status, said)
