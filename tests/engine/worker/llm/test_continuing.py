"""An answer that was broken off: how a server is asked for its rest, and how it shows that it would give one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from engine.chunk import Text, ToolCall, Usage, texts
from engine.worker.llm.continuing import continued, goes_on, rest
from engine.worker.llm.deltas import Delta, ReasoningDelta

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 9,
    "temperature": 0,
}
OPEN = {"add_generation_prompt": False, "continue_final_message": True, "echo": False}


def written(*pieces: str) -> list[Text]:
    return list(texts(pieces))


class Replies:
    """A server's own API, by path; what it is asked is kept."""

    def __init__(self, **replies: Any) -> None:
        self.replies, self.asked = replies, list[tuple[str, Mapping[str, Any]]]()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        self.asked.append((path, body))
        return self.replies.get(path.replace("-", "_"))


def test_what_was_written_stands_last_and_is_left_open() -> None:
    body = continued(BODY, written("One ", "two "))
    assert body["messages"] == [*BODY["messages"], {"role": "assistant", "content": "One two"}]
    assert {name: body[name] for name in OPEN} == OPEN
    assert (body["max_tokens"], body["temperature"]) == (7, 0)
    assert len(BODY["messages"]) == 1


def test_at_least_one_token_is_asked_for() -> None:
    assert continued(BODY, written(*"abcdefghijkl"))["max_tokens"] == 1


@pytest.mark.parametrize(
    ("prompt", "goes"),
    [
        ("<user>Count.<assistant>One two", True),
        ("<user>Count.<assistant>One two<end>\n<assistant>", False),
        ("<user>Count.<assistant>", False),
    ],
)
@pytest.mark.parametrize("owner", ["llamacpp", "vllm"])
async def test_a_server_goes_on_if_its_prompt_ends_with_what_was_written(owner: str, prompt: str, goes: bool) -> None:
    server = Replies(apply_template={"prompt": prompt}, tokenize={"tokens": [1, 2]}, detokenize={"prompt": prompt})
    assert await goes_on(server, owner, continued(BODY, written("One ", "two "))) is goes
    paths = [path for path, _ in server.asked]
    assert paths == (["apply-template"] if owner == "llamacpp" else ["tokenize", "detokenize"])
    assert server.asked[0][1]["messages"][-1] == {"role": "assistant", "content": "One two"}
    assert "temperature" not in server.asked[0][1] or owner == "llamacpp"


async def test_a_server_of_another_make_is_asked_nothing() -> None:
    server = Replies(apply_template={"prompt": "One"})
    assert not await goes_on(server, "openai", continued(BODY, written("One")))
    assert not server.asked


@pytest.mark.parametrize("reply", [None, [], "x", {}, {"prompt": 7}, {"prompt": None}])
@pytest.mark.parametrize("owner", ["llamacpp", "vllm"])
async def test_a_server_that_shows_no_prompt_does_not_go_on(owner: str, reply: Any) -> None:
    server = Replies(apply_template=reply, tokenize=reply, detokenize=reply)
    assert not await goes_on(server, owner, continued(BODY, written("One")))


async def test_nothing_but_space_is_nothing_to_go_on_behind() -> None:
    assert not await goes_on(Replies(apply_template={"prompt": "x"}), "llamacpp", continued(BODY, written("\n", " ")))


async def placed(before: list[Text], *deltas: Delta) -> list[Delta]:
    async def came() -> AsyncGenerator[Delta]:
        for one in deltas:
            yield one

    return [one async for one in rest(came(), before)]


async def test_the_rest_stands_behind_what_was_written_and_is_counted_with_it() -> None:
    found = await placed(written("One", " two"), Text(" three", 0), Text(" four", 6), Usage(20, 2, finish="stop"))
    assert found == [Text(" three", 7), Text(" four", 13), Usage(18, 4, finish="stop")]


async def test_space_that_was_written_does_not_come_twice() -> None:
    """What is asked for ends without it, so the model writes it again."""
    found = await placed(written("One", " "), Text(" ", 0), Text(" two", 1), Text(" three", 5))
    assert found == [Text("two", 4), Text(" three", 7)]


async def test_calls_and_thoughts_behind_it_stay_as_they_are() -> None:
    others: tuple[Delta, ...] = (ReasoningDelta("hm"), ToolCall("c", "look", "{}"))
    assert await placed(written("One"), *others) == list(others)
