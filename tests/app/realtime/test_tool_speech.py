"""A session whose tools take their time: lines meanwhile, results without a request, and nothing lost or said twice."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from typing import Any

import pytest

from app.mcp import CallResult, HostedTool, ToolServerError, ToolServers
from app.mcp.entry import ToolServerEntry
from app.realtime.protocol import ToolOptions
from app.settings import Limits
from engine import Overloaded
from engine.core import ToolResultPart
from tests.app.realtime.test_session import Talk, talking
from tests.app.rig import silence, tone

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CALLS = 20
AT_ONCE = {"speech": True, "preamble_s": 0, "progress_s": 0, "sound_s": 0}


class SlowServer(ToolServers):
    """Servers with one tool, "look", whose calls end as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[asyncio.Future[CallResult]] = []
        self.begun = 0
        self.cancelled = 0
        self.leaves: asyncio.Event | None = None
        """What a cancelled call waits for; None: nothing."""

    def names(self, tree: dict[str, Any]) -> bool:
        return True

    def read(self, tree: dict[str, Any], path: str) -> Any:
        self.entry = ToolServerEntry("slow", "http://slow", require_approval="never", parley=tree.get("parley"))
        return self

    async def list_tools(self) -> tuple[HostedTool, ...]:
        server: Any = self
        return (HostedTool(server, "look", "look", "", {"type": "object"}, {}, 10),)

    async def call(self, name: str, arguments: str) -> CallResult:
        self.begun += 1
        future = asyncio.get_running_loop().create_future()
        self.open.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            self.cancelled += 1
            if future in self.open:
                self.open.remove(future)
            if self.leaves is not None:
                await self.leaves.wait()
            raise

    def returns(self, text: str, place: int = 0) -> None:
        self.open.pop(place).set_result(CallResult(text))

    def fails(self, place: int = 0) -> None:
        self.open.pop(place).set_exception(ToolServerError("it broke"))


async def hosting(talk: Talk, **parley: Any) -> None:
    await talk.say("session.update", session={"tools": [{"type": "mcp", "server_label": "slow", "parley": parley}]})


def lines(talk: Talk) -> list[dict[str, Any]]:
    """The responses that were spoken while tools ran, as they ended."""
    done = [event["response"] for event in talk.of("response.done")]
    return [one for one in done if one["metadata"] == {"purpose": "tool_wait"}]


def begun(talk: Talk) -> list[dict[str, Any]]:
    """The conversation's responses."""
    return [event["response"] for event in talk.of("response.created") if event["response"]["conversation_id"]]


def results(talk: Talk) -> list[list[str]]:
    """The results in the prompt of each answer."""
    return [
        [part.output for message in request.messages for part in message.parts if isinstance(part, ToolResultPart)]
        for request in talk.engine.requests
        if request.say is None
    ]


async def result(talk: Talk, output: str) -> None:
    (call,) = [one["item"] for one in talk.of("conversation.item.done") if one["item"]["type"] == "function_call"][-1:]
    item = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
    await talk.say("conversation.item.create", item=item)


async def test_a_line_is_spoken_while_a_tool_of_the_server_runs_and_its_result_without_a_request() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, **AT_ONCE, answer=True)
        await talk.typed("only call")
        said = [request.say for request in talk.engine.requests if request.say is not None]
        assert said == ["One moment, I'm checking."]
        assert talk.events[-1]["type"] != "response.done", "the lines go on while the tool runs"
        servers.returns("found")
        await talk.quiet_down()
        assert [one["status"] for one in lines(talk)] == ["completed"]
        assert lines(talk)[0]["output"][0]["content"][0]["transcript"] == said[0]
        assert len(begun(talk)) == 2
        assert results(talk)[-1] == ["found"]
    stored = [one["item"]["output"] for one in talk.of("conversation.item.done") if one["item"]["type"] == "mcp_call"]
    assert stored == ["found"]


async def test_a_function_of_the_client_has_no_line_and_no_answer_unless_it_asks() -> None:
    async with talking() as talk:
        await talk.say("session.update", session={"tools": [LOOK], "parley": {"tools": {"preamble_s": 0}}})
        await talk.typed("only call")
        await result(talk, "found")
        assert not lines(talk)
        assert len(begun(talk)) == 1
        await talk.say("session.update", session={"tools": [{**LOOK, "parley": {**AT_ONCE, "answer": True}}]})
        await talk.typed("only call")
        await result(talk, "found again")
        assert len(lines(talk)) == 1
        assert len(begun(talk)) == 3
        assert results(talk)[-1] == ["found", "found again"]


async def test_speech_stops_the_line_and_the_late_result_is_part_of_the_next_answer() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, **AT_ONCE, answer=True)
        await talk.typed("only call")
        talk.now_s += 10
        await talk.hear(tone(0.3))
        assert [(one["status"], one["status_details"]["reason"]) for one in lines(talk)] == [
            ("cancelled", "turn_detected")
        ]
        servers.returns("found")
        await talk.quiet_down()
        assert len(begun(talk)) == 1, "nobody talks over the user"
        await talk.hear(silence(0.7))
        assert len(begun(talk)) == 2
        assert results(talk)[-1] == ["found"]
        assert servers.cancelled == 0
    assert len(begun(talk)) == 2, "the result is not spoken of again"


@pytest.mark.parametrize("on_interrupt", ["continue", "cancel"])
@pytest.mark.parametrize("calls", [1, 8])
async def test_speech_stops_the_line_in_the_loop_turn_that_reports_it(
    on_interrupt: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tool, engine or timer runs in between, so none of them can delay an interruption."""
    loop = asyncio.get_running_loop()
    turn_of: dict[str, int] = {}
    turn = 0
    tell = Talk._tell

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    def noted(talk: Talk, notice: Any) -> None:
        tell(talk, notice)
        turn_of[talk.events[-1]["type"]] = turn

    monkeypatch.setattr(Talk, "_tell", noted)
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, **AT_ONCE, on_interrupt=on_interrupt)
        await talk.typed("only call")
        for n in range(calls - 1):
            talk.session._responses.calls.began(f"other {n}", ToolOptions(), hosted=True)
        talk.now_s += 10
        turn_of.clear()
        loop.call_soon(count)
        await talk.hear(tone(0.3))
        assert [one["status"] for one in lines(talk)] == ["cancelled"]
        assert turn_of["response.done"] == turn_of["input_audio_buffer.speech_started"] > 0
        spoken = len(talk.of("response.output_audio.delta"))
        await talk.hear(tone(0.3))
        assert len(talk.of("response.output_audio.delta")) == spoken
        assert len(servers.open) == 1


async def test_a_new_turn_cancels_a_tool_that_wants_it() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, on_interrupt="cancel")
        await talk.typed("only call")
        await talk.typed("never mind")
        assert servers.cancelled == 1
        (call,) = [one["item"] for one in talk.of("conversation.item.done") if one["item"]["type"] == "mcp_call"]
        assert "the user has moved on" in call["error"]["message"]


async def test_a_turn_is_committed_while_a_cancelled_tool_still_takes_leave_of_its_server() -> None:
    servers = SlowServer()
    servers.leaves = asyncio.Event()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, on_interrupt="cancel")
        await talk.typed("only call")
        await talk.typed("never mind")
        assert servers.cancelled == 1
        await talk.typed("really")
        assert not talk.of("error")
        assert talk.statuses() == ["completed"] * 3
        servers.leaves.set()
        await talk.quiet_down()
    (call,) = [one["item"] for one in talk.of("conversation.item.done") if one["item"]["type"] == "mcp_call"]
    assert "the user has moved on" in call["error"]["message"]


async def test_a_response_that_the_session_begins_while_another_ones_input_is_decoded_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, **AT_ONCE, answer=True)
        await talk.typed("only call")

        async def in_thread(work: Callable[[], Any]) -> Any:
            servers.returns("found")
            for _ in range(40):
                if len(begun(talk)) == 2:
                    break
                await asyncio.sleep(0)
            return work()

        monkeypatch.setattr(talk.context.scheduler, "in_thread", in_thread)
        speech = {"type": "input_audio", "audio": base64.b64encode(silence(0.2).tobytes()).decode()}
        message = {"type": "message", "role": "user", "content": [speech]}
        await talk.say("response.create", response={"input": [message]})
        assert [one["error"]["code"] for one in talk.of("error")] == ["conversation_already_has_active_response"]
        assert len(begun(talk)) == 2


async def test_a_bug_in_a_call_is_the_call_s_error_and_the_session_goes_on() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk)
        await talk.typed("only call")
        servers.open.pop().set_exception(ZeroDivisionError())
        await talk.quiet_down()
        (call,) = [one["item"] for one in talk.of("conversation.item.done") if one["item"]["type"] == "mcp_call"]
        assert "The server failed" in call["error"]["message"]
        await talk.typed("hi")
        assert talk.statuses() == ["completed"] * 2


async def test_a_bug_in_a_list_of_tools_is_its_failure_and_the_session_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowServer, "list_tools", broken)
    async with talking(tool_servers=SlowServer()) as talk:
        await hosting(talk)
        assert len(talk.of("mcp_list_tools.failed")) == 1
        await talk.typed("hi")
        assert talk.statuses() == ["completed"]


async def test_tools_for_whose_list_there_was_no_room_are_listed_once_there_is() -> None:
    async with talking(tool_servers=SlowServer(), limits=Limits(items=1)) as talk:
        item = {"id": "mine", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        await talk.say("conversation.item.create", item=item)
        await hosting(talk)
        assert not talk.of("mcp_list_tools.in_progress")
        await talk.say("conversation.item.delete", item_id="mine")
        await hosting(talk)
        assert len(talk.of("mcp_list_tools.completed")) == 1


async def broken(_: SlowServer) -> Any:
    raise ZeroDivisionError


async def test_another_response_replaces_the_line() -> None:
    async with talking() as talk:
        await talk.say("session.update", session={"tools": [{**LOOK, "parley": AT_ONCE}]})
        await talk.typed("only call")
        await talk.say("response.create", response={"conversation": "none", "input": []})
        await talk.quiet_down()
    assert [one["status"] for one in lines(talk)] == ["cancelled"]
    assert not talk.of("error")


async def test_a_client_that_cancels_the_line_hears_no_other() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, **{**AT_ONCE, "progress_s": 0.001})
        await talk.typed("only call")
        await talk.say("response.cancel")
        assert [one["status"] for one in lines(talk)] == ["cancelled"]
        talk.now_s += 60
        await talk.say("session.update", session={"instructions": "anything"})
        assert len(lines(talk)) == 1
        assert not talk.of("error")


async def test_an_engine_that_cannot_speak_the_line_leaves_a_soft_sound() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk, **{**AT_ONCE, "preamble_s": 5})
        await talk.typed("only call")
        talk.engine.refuses = Overloaded("every slot is taken")
        talk.now_s += 30
        await talk.say("session.update", session={"instructions": "anything"})
        await talk.say("input_audio_buffer.clear")
        servers.returns("found")
        await talk.quiet_down()
    assert [one["status"] for one in lines(talk)] == ["completed"]
    deltas = [one for one in talk.of("response.output_audio.delta") if one["response_id"] == lines(talk)[0]["id"]]
    assert deltas


async def test_a_result_of_ten_megabytes_is_one_error_and_a_shorter_one_is_answered() -> None:
    async with talking() as talk:
        await talk.say("session.update", session={"tools": [{**LOOK, "parley": {**AT_ONCE, "answer": True}}]})
        await talk.typed("only call")
        await result(talk, "x" * (10 << 20))
        assert [one["error"]["code"] for one in talk.of("error")] == ["context_length_exceeded"]
        assert len(begun(talk)) == 1
        await result(talk, "too long to read")
        await talk.quiet_down()
        assert results(talk)[-1] == ["too long to read"]
        assert talk.statuses()[-1] == "completed"


async def test_a_call_that_runs_when_its_session_ends_is_cancelled() -> None:
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        await hosting(talk)
        await talk.typed("only call")
        assert len(servers.open) == 1
    assert servers.cancelled == 1
    assert not servers.open


@pytest.mark.parametrize(
    "parley", [{"preamble_s": -1}, {"on_interrupt": "perhaps"}, {"progress": ["x"] * 9}, {"preamble": "x" * 201}]
)
async def test_settings_of_a_tool_are_checked(parley: dict[str, Any]) -> None:
    async with talking(tool_servers=SlowServer()) as talk:
        for tool in ({**LOOK, "parley": parley}, {"type": "mcp", "server_label": "slow", "parley": parley}):
            await talk.say("session.update", session={"tools": [tool]})
            (error,) = talk.of("error")
            assert error["error"]["param"].startswith("session.tools[0].parley.")
            talk.events.remove(error)
        await talk.typed("hi")
        assert talk.statuses() == ["completed"]


class Chance:
    """Random things that happen while tools run. ``asked`` counts the responses that the client or a turn requested."""

    def __init__(self, talk: Talk, servers: SlowServer, seed: int) -> None:
        self.talk = talk
        self.servers = servers
        self.draw = random.Random(seed)
        self.asked = 0

    async def typed(self, text: str) -> None:
        await self.talk.say("response.cancel")  # a second response would be refused
        self.asked += 1
        await self.talk.typed(text)

    async def speech(self) -> None:
        """The user speaks, and a tool may return meanwhile."""
        await self.talk.hear(tone(0.3))
        if self.servers.open and self.draw.random() < 0.5:
            self.servers.returns(f"meanwhile {self.draw.random()}")

    async def happen(self) -> None:
        talk, servers, draw = self.talk, self.servers, self.draw
        match draw.randrange(8):
            case 0 | 1 if servers.open:
                servers.returns(f"result {draw.random()}", draw.randrange(len(servers.open)))
            case 2 if servers.open:
                servers.fails(draw.randrange(len(servers.open)))
            case 3:
                await talk.say("response.cancel")
            case 4:  # a turn
                self.asked += 1
                await self.speech()
                await talk.hear(silence(0.7))
            case 5:  # a noise that the client drops
                await self.speech()
                await talk.say("input_audio_buffer.clear")
            case 6:
                await self.typed(draw.choice(["hi", "fail"]))
            case _:
                talk.now_s += draw.random() * 3
                await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
async def test_no_result_of_twenty_calls_is_lost_or_spoken_twice(seed: int) -> None:
    """Calls return, fail and are cancelled, among turns, noises, cancelled or failing responses and typed messages."""
    servers = SlowServer()
    async with talking(tool_servers=servers) as talk:
        chance = Chance(talk, servers, seed)
        while servers.begun < CALLS:
            await hosting(talk, **AT_ONCE, answer=True, on_interrupt=chance.draw.choice(["continue", "cancel"]))
            await chance.typed("only call")
            for _ in range(chance.draw.randrange(6)):
                await chance.happen()
        while servers.open:
            servers.returns("late")
            await talk.quiet_down()
        check_each_result(talk, chance.asked)


def check_each_result(talk: Talk, asked: int) -> None:
    """Each result is stored once, is in an answer's prompt, and causes at most one answer that nobody requested."""
    calls = [one["item"] for one in talk.of("conversation.item.done") if one["item"]["type"] == "mcp_call"]
    assert len({one["id"] for one in calls}) == len(calls), "each call ends once"
    assert all((one["output"] is None) != (one["error"] is None) for one in calls)
    answered, unasked = set[str](), 0
    answers = prompts(talk)
    for ids in answers:
        unasked += bool(ids - answered)
        answered |= ids
    assert {one["id"] for one in calls} == answered, "no result is lost"
    assert len(answers) <= asked + unasked, "none is spoken of twice"


def prompts(talk: Talk) -> list[set[str]]:
    """The ids of the calls whose results are in the prompt of each answer of the conversation, in order.

    A response that is cancelled before its request has no prompt, and speaks of nothing.
    """
    kept = {one["id"] for one in begun(talk)}
    return [
        {part.call_id for message in request.messages for part in message.parts if isinstance(part, ToolResultPart)}
        for request in talk.engine.requests
        if request.id in kept
    ]
