"""The protocol, driven by a state machine that says legal and illegal things in any order, some in one breath.

What must hold: exactly one response.done for each response.created and nothing of that response
after it; every item and part closed; one kept response at a time; an error for what is refused, which names the event
that caused it, and never the session's end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.realtime.protocol.from_wire import decode
from engine import StageFailed
from tests.app.realtime.test_session import FakeEngine, Talk, check_order
from tests.app.rig import Running, silence, talking, tone

WORDS = st.sampled_from(["hi", "wait", "fail", "bug", "call"])
DETECTIONS: list[Any] = [
    None,
    {"type": "server_vad"},
    {"type": "semantic_vad", "eagerness": "high"},
    {"create_response": False},
    {"interrupt_response": False},
    {"type": "server_vad", "idle_timeout_ms": 300},
    {"type": "server_vad", "idle_timeout_ms": -1},
]
FORMATS = ["audio/pcm", "audio/pcmu", "audio/pcma", "audio/mp3"]
NONSENSE = [
    "",
    "{",
    "[]",
    "null",
    '{"type": 1}',
    '{"type": "response.explode"}',
    '{"type":"session.update"}',
    "[" * 9999,
]


class Protocol(RuleBasedStateMachine):
    """One session on a fake engine, in a loop of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.talk = Talk(FakeEngine())
        self.sent = 0
        self.running = self.loop.create_task(self.talk.run())
        self.do(asyncio.sleep(0))

    def do(self, step: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(step)

    def say(self, type: str, **fields: Any) -> None:
        self.sent += 1
        self.do(self.talk.say(type, event_id=f"mine_{self.sent}", **fields))

    @rule(word=WORDS, ref=st.sampled_from([None, "root", "nobody", "last"]))
    def adds_an_item(self, word: str, ref: str | None) -> None:
        content = [{"type": "input_text", "text": word}]
        where = {"previous_item_id": self.item(0) if ref == "last" else ref} if ref else {}
        self.say("conversation.item.create", item={"type": "message", "role": "user", "content": content}, **where)

    @rule(kept=st.booleans(), modality=st.sampled_from(["text", "audio", "smell"]))
    def asks(self, kept: bool, modality: str) -> None:
        conversation = "auto" if kept else "none"
        self.say("response.create", response={"conversation": conversation, "output_modalities": [modality]})

    @rule(which=st.sampled_from(["current", "last", "nobody"]))
    def cancels(self, which: str) -> None:
        created = self.talk.of("response.created")
        last = created[-1]["response"]["id"] if created else "nobody"
        self.say("response.cancel", **({} if which == "current" else {"response_id": {"last": last}.get(which, which)}))

    @rule(seconds=st.sampled_from([0.05, 0.3]))
    def speaks(self, seconds: float) -> None:
        self.do(self.talk.hear(tone(seconds)))

    @rule(seconds=st.sampled_from([0.3, 0.7]))
    def pauses(self, seconds: float) -> None:
        self.do(self.talk.hear(silence(seconds)))

    @rule(type=st.sampled_from(["commit", "clear"]))
    def uses_the_buffer(self, type: str) -> None:
        self.say(f"input_audio_buffer.{type}")

    @rule(detection=st.sampled_from(DETECTIONS), format=st.sampled_from(FORMATS), heard=st.booleans())
    def configures(self, detection: Any, format: str, heard: bool) -> None:
        transcription = {} if heard else None
        audio = {"turn_detection": detection, "transcription": transcription, "format": {"type": format}}
        self.say("session.update", session={"audio": {"input": audio}})

    @rule(back=st.integers(0, 3), what=st.sampled_from(["delete", "retrieve", "truncate"]), ms=st.integers(-1, 400))
    def edits(self, back: int, what: str, ms: int) -> None:
        cut = {"content_index": 0, "audio_end_ms": ms} if what == "truncate" else {}
        self.say(f"conversation.item.{what}", item_id=self.item(back), **cut)

    @rule(text=st.sampled_from(NONSENSE))
    def says_nonsense(self, text: str) -> None:
        async def mutter() -> None:
            self.talk.hears(decode(text))
            for _ in range(20):
                await asyncio.sleep(0)

        self.do(mutter())

    @rule(order=st.permutations(["response.create", "response.cancel", "input_audio_buffer.commit", "response.create"]))
    def says_all_in_one_breath(self, order: list[str]) -> None:
        for type in order[:-1]:
            self.talk.mutter(type)
        self.say(order[-1])

    @rule(seconds=st.sampled_from([0.04, 0.15, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.talk.now_s += seconds

    @rule(broken=st.booleans())
    def the_engine_refuses(self, broken: bool) -> None:
        self.talk.engine.refuses = StageFailed("no replica") if broken else None

    def item(self, back: int) -> str:
        added = self.talk.of("conversation.item.added")
        return added[-1 - back]["item"]["id"] if len(added) > back else "nobody"

    @invariant()
    def the_session_goes_on(self) -> None:
        assert not self.running.done()

    @invariant()
    def the_order_holds(self) -> None:
        check_order(self.talk.events)
        check_items(self.talk.events)
        check_errors(self.talk.events, self.sent)

    @invariant()
    def one_response_is_kept_at_a_time(self) -> None:
        over = {event["response"]["id"] for event in self.talk.of("response.done")}
        created = (event["response"] for event in self.talk.of("response.created"))
        assert sum(one["id"] not in over and one["conversation_id"] is not None for one in created) <= 1

    def teardown(self) -> None:
        async def end() -> None:
            self.talk.session.end("server_shutting_down", "over")
            self.talk.leave()
            await self.running

        self.do(end())
        self.loop.close()
        assert self.talk.engine.open_now == 0
        check_order(self.talk.events)
        assert len(self.talk.of("response.created")) == len(self.talk.of("response.done"))


Protocol.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestProtocol = pytest.mark.filterwarnings("ignore::ResourceWarning")(Protocol.TestCase)


def check_items(events: list[dict[str, Any]]) -> None:
    """An item is done once, after it was added; whatever is said of an item is said of one that was there."""
    added: set[str] = set()
    done: set[str] = set()
    for event in events:
        if event["type"] == "conversation.item.added":
            added.add(event["item"]["id"])
        elif event["type"] == "conversation.item.done":
            assert event["item"]["id"] in added - done
            assert event["item"]["status"] != "in_progress"
            done.add(event["item"]["id"])
        elif event["type"] in ("conversation.item.deleted", "conversation.item.truncated"):
            assert event["item_id"] in added


def check_errors(events: list[dict[str, Any]], sent: int) -> None:
    """Each error says what and, where the client named its event, which; no event is refused twice."""
    named = [event["error"]["event_id"] for event in events if event["type"] == "error"]
    ours = [name for name in named if name is not None]
    assert len(ours) == len(set(ours))
    assert all(1 <= int(name.removeprefix("mine_")) <= sent for name in ours)
    assert all(event["error"]["message"] and event["error"]["code"] for event in events if event["type"] == "error")


def test_the_checks_can_fail() -> None:
    item = {"id": "a", "status": "completed"}
    done = {"type": "conversation.item.done", "item": item}
    with pytest.raises(AssertionError):
        check_items([done])
    with pytest.raises(AssertionError):
        check_items([{"type": "conversation.item.added", "item": item}, done, done])
    error = {"type": "error", "error": {"event_id": "mine_1", "message": "no", "code": "x"}}
    with pytest.raises(AssertionError):
        check_errors([error, error], 1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.fault("I2.5")
async def test_a_storm_over_a_real_socket(seed: int, server: Running) -> None:
    """The same, with the scripted family and no wait between what is said."""
    dice = random.Random(seed)
    async with talking(server) as client:
        for _ in range(120):
            await _say_anything(client, dice)
        await client.send("session.update", session={"audio": {"input": {"turn_detection": None}}})
        await client.send("response.cancel")
        await client.send("conversation.item.retrieve", item_id="x", event_id="the end")
        while (await client.error())["event_id"] != "the end":
            pass
        while len(client.of("response.created")) != len(client.of("response.done")):
            await client.until("response.done")
        response = await client.ask("say: still here", output_modalities=["text"])
        assert response["status"] == "completed", response
        check_order(client.events)
        check_items(client.events)
        assert client.of("error")
    await server.empty()


async def _say_anything(client: Any, dice: random.Random) -> None:
    items = [event["item"]["id"] for event in client.of("conversation.item.added")] or ["nobody"]
    match dice.randrange(9):
        case 0:
            await client.say(dice.choice(["say: a b", "long 30", "fail", "tool look {} ; listen {}", "slow"]))
        case 1 | 2:
            await client.send("response.create", response={"conversation": dice.choice(["auto", "none"])})
        case 3:
            await client.send("response.cancel")
        case 4:
            await client.append(dice.choice([tone, silence])(dice.choice([0.1, 0.4])))
        case 5:
            detection = {"turn_detection": dice.choice(DETECTIONS), "format": {"type": dice.choice(FORMATS)}}
            await client.send("session.update", session={"audio": {"input": detection}})
        case 6:
            await client.send(f"input_audio_buffer.{dice.choice(['commit', 'clear'])}")
        case 7:
            where = {"item_id": dice.choice(items), "content_index": 0, "audio_end_ms": dice.randrange(-5, 400)}
            await client.send(f"conversation.item.{dice.choice(['truncate', 'delete', 'retrieve'])}", **where)
        case _:
            await client.socket.send(dice.choice(NONSENSE[:-1]))


def test_what_is_asked_when_the_server_has_ended_the_session_begins_nothing() -> None:
    state = Protocol()
    state.configures({"type": "server_vad"}, "audio/pcmu", False)
    state.pauses(0.7)
    state.says_all_in_one_breath(["response.create", "response.cancel", "input_audio_buffer.commit", "response.create"])
    state.teardown()
