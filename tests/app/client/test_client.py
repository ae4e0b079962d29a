"""The typed client, against a real server over a real socket."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any, cast

import numpy as np
import pytest

from app.client import (
    AudioDelta,
    ClientChannel,
    ClientError,
    Error,
    ItemTruncated,
    Other,
    PlaybackPaused,
    PlaybackResumed,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    TextDelta,
    Tool,
    connect,
)
from app.client.events import decode
from app.client.microphone import Microphone
from app.client.reader import UNREAD, Events
from engine.worker.models import script
from tests.app.http.test_chat import PIXEL
from tests.app.rig import Running, eventually, hum, keys_file, running, script_spec, silence, tone

WORD = 2 * 960  # samples: two codec frames


async def test_a_typed_question_has_a_whole_answer(server: Running) -> None:
    async with connect(server.http) as client:
        assert client.session["model"] == "script"
        answer = await client.ask("say: one two three")
    assert (answer.status, answer.text) == ("completed", "one two three")
    assert len(answer.pcm) == 3 * WORD
    assert np.abs(answer.pcm).max() > 3000
    assert answer.complete
    assert answer.ledger is not None
    assert answer.ledger["ttfa_ms"] > 0
    assert "turn_ms" not in answer.ledger


@pytest.mark.parametrize("eagerness", ["auto", "high", None])
async def test_our_clients_ask_for_turns_that_end_when_they_sound_finished(server: Running, eagerness: Any) -> None:
    async with connect(server.http, **({} if eagerness == "auto" else {"eagerness": eagerness})) as client:
        detection = client.session["audio"]["input"]["turn_detection"]
    if eagerness is None:
        assert (detection["type"], detection["silence_duration_ms"]) == ("server_vad", 500)
    else:
        assert (detection["type"], detection["eagerness"]) == ("semantic_vad", eagerness)


@pytest.mark.slow
async def test_our_client_pauses_its_player_while_the_server_judges_what_the_user_says(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.ScriptEars, "_hear", hum)
    async with connect(server.http) as client:
        assert client.session["parley"]["pauses"]
        events = client.events()
        asking = asyncio.create_task(client.ask("long 60"))
        await eventually(lambda: client.audible)
        await client.speak(np.concatenate([tone(0.25), silence(0.7)]))
        seen: list[Any] = []
        while ResponseDone not in seen:
            seen.append(type(await anext(events)))
        assert [kind for kind in seen if kind in (PlaybackPaused, PlaybackResumed)] == [PlaybackPaused, PlaybackResumed]
        assert (await asking).status == "completed"


async def test_settings_and_text_answers(server: Running) -> None:
    async with connect(server.http, model="any") as client:
        assert (await client.configure(output_modalities=["text"]))["output_modalities"] == ["text"]
        assert client.session["model"] == "any"
        answer = await client.ask("say: quiet")
        assert (answer.text, len(answer.pcm), answer.ttfa_s) == ("quiet", 0, None)
        with pytest.raises(ClientError, match="output_modalities") as refused:
            await client.configure(output_modalities=["audio", "text"])
        assert refused.value.code == "invalid_value"
        assert (await client.ask("say: still here", base64.b64decode(PIXEL.partition(",")[2]))).text == "still here"


ZONE = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}


async def test_tools_are_run_and_their_results_answered(server: Running) -> None:
    calls: list[dict[str, Any]] = []

    async def clock(zone: str) -> dict[str, str]:
        calls.append({"zone": zone})
        return {"time": "noon"}

    async with connect(server.http, tools=[Tool("clock", "What time it is.", clock, ZONE)]) as client:
        assert client.session["tools"][0]["name"] == "clock"
        answer = await client.ask('tool clock {"zone": "UTC"}')
        assert calls == [{"zone": "UTC"}]
        assert (answer.status, answer.calls) == ("completed", [])
        foreign = await client.ask("tool other {}")
        assert [(call.name, call.arguments) for call in foreign.calls] == [("other", "{}")]


async def test_several_functions_run_in_parallel_and_an_error_is_a_result(server: Running) -> None:
    met = asyncio.Barrier(2)

    async def meet() -> str:
        await met.wait()
        return "met"

    async def fall() -> str:
        raise ZeroDivisionError("it fell")

    tools = [Tool("meet", "Meets another one.", meet), Tool("fall", "Falls.", fall)]
    async with connect(server.http, tools=tools) as client:
        await client.configure(output_modalities=["text"])
        answer = await client.ask("tool meet {} ; meet {} ; fall {}")
        assert answer.status == "completed"
        assert answer.text == 'The tool says: {"error":"it fell"}'
        assert (await client.ask("say: still here")).text == "still here"


async def test_a_plain_function_is_a_tool_and_a_slow_one_holds_nobody(server: Running) -> None:
    loop = asyncio.get_running_loop()

    def look(place: str) -> str:
        """Waits for the event loop, which would never end if the function ran in it."""
        seen = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, f"sunny in {place}"), loop)
        return seen.result(timeout=10)

    place = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    async with connect(server.http, tools=[Tool("look", "Looks.", look, place)]) as client:
        await client.configure(output_modalities=["text"])
        answer = await client.ask('tool look {"place": "Rome"}')
        assert answer.text == 'The tool says: "sunny in Rome"'


async def test_a_timeout_within_a_function_is_its_own_error(server: Running) -> None:
    def slow() -> str:
        raise TimeoutError("the shop did not answer")

    async with connect(server.http, tools=[Tool("slow", "Fails.", slow)]) as client:
        await client.configure(output_modalities=["text"])
        assert (await client.ask("tool slow {}")).text == 'The tool says: {"error":"the shop did not answer"}'


async def test_speech_of_the_user_cancels_a_function_that_wants_it(server: Running) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    tools = [Tool("never", "Never returns.", never, parley={"on_interrupt": "cancel", "speech": False})]
    async with connect(server.http, tools=tools, eagerness=None) as client:
        assert client.session["tools"][0]["parley"] == {"on_interrupt": "cancel", "speech": False}
        await client.configure(
            output_modalities=["text"],
            audio={"input": {"turn_detection": {"type": "server_vad", "create_response": False}}},
        )
        asking = asyncio.create_task(client.ask("tool never {}"), name="asking")
        await eventually(lambda: bool(client._cancellable))
        await client.speak(tone(0.5))
        assert "the user spoke" in (await asking).text


async def test_a_line_that_the_server_speaks_is_not_the_answer_to_a_turn(server: Running) -> None:
    looked = asyncio.Event()

    async def look() -> str:
        await looked.wait()
        return "found"

    tools = [Tool("look", "Looks.", look, parley={"speech": True, "preamble_s": 0.01})]
    async with connect(server.http, tools=tools, eagerness=None) as client:
        events = client.events()
        asking = asyncio.create_task(client.ask("tool look {}"), name="asking")
        async for event in events:
            if isinstance(event, ResponseCreated) and event.response["metadata"] == {"purpose": "tool_wait"}:
                break
        await eventually(lambda: client.audible)
        assert not client._unasked
        looked.set()
        assert (await asking).text == 'The tool says: "found"'
        assert not client._unasked


async def test_who_must_call_a_function_calls_it_once(server: Running) -> None:
    async def clock(zone: str) -> str:
        return f"noon in {zone}"

    async with connect(server.http, tools=[Tool("clock", "What time it is.", clock, ZONE)]) as client:
        question = 'tool clock {"zone": "UTC"}'
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}
        answer = await client.respond(tool_choice="required", input=[message])
        assert (answer.status, answer.text) == ("completed", 'The tool says: "noon in UTC"')
        await client.configure(tool_choice={"type": "function", "name": "clock"})
        answer = await client.ask(question)
        assert (answer.status, answer.text) == ("completed", 'The tool says: "noon in UTC"')


async def test_a_message_that_is_refused_is_not_answered_without(server: Running) -> None:
    async with connect(server.http) as client:
        await client.say("long 400")
        with pytest.raises(ClientError, match="image"):
            await client.ask("What is this?", b"no picture")
        assert (await client.ask("say: still here")).text == "still here"
        assert not client._unasked
        assert not client._said


async def test_a_result_that_is_refused_is_not_answered_without(server: Running) -> None:
    async def page() -> str:
        return "x" * 2_000_000

    async with connect(server.http, tools=[Tool("page", "A page.", page)]) as client:
        with pytest.raises(ClientError, match="2000002 characters"):
            await client.ask("tool page {}")


async def test_a_spoken_turn(server: Running) -> None:
    async with connect(server.http, eagerness=None) as client:
        events = client.events()
        await client.speak(np.concatenate([silence(0.2), tone(0.5)]))
        client.speech_ended()
        ended_s = asyncio.get_running_loop().time()
        hush = asyncio.create_task(client.speak(silence(30)), name="hush")
        answer = await client.answer()
        hush.cancel()
        await asyncio.wait([hush])
        assert answer.text.startswith("I heard")
        assert answer.ttfa_s is not None
        assert 0.3 < answer.ttfa_s < asyncio.get_running_loop().time() - ended_s
        assert answer.ledger is not None
        assert 500 <= answer.ledger["turn_ms"] < 600  # the silence that ended it
        async for event in events:
            if isinstance(event, SpeechStarted):
                break


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
@pytest.mark.slow
async def test_a_recording_without_silence_at_its_end_is_answered(server: Running, transport: Any) -> None:
    async with connect(server.http, transport=transport) as client:
        await client.speak(tone(0.5))
        assert (await client.answer()).text.startswith("I heard")
        await client.speak(tone(0.3))  # and once more: the microphone goes on
        assert (await client.answer()).text.startswith("I heard")


async def test_silence_alone_has_no_answer_and_that_is_told(server: Running) -> None:
    async with connect(server.http) as client:
        with pytest.raises(ClientError, match=r"no answer within 0\.1 s of silence") as refused:
            await client.answer(patience_s=0.1)
        assert refused.value.code == "no_answer"
        assert (await client.ask("say: still here")).text == "still here"


async def test_a_microphone_keeps_its_pace_whoever_speaks() -> None:
    """Speech and silence never overtake the clock, and nobody is silent while somebody speaks."""
    loop = asyncio.get_running_loop()
    pieces: list[tuple[float, bool]] = []

    class Clocked:
        async def speak(self, pcm: Any) -> None:
            pieces.append((loop.time(), bool(pcm.any())))

    microphone, begun_s = Microphone(cast("ClientChannel", Clocked()), loop.time), loop.time()
    async with asyncio.TaskGroup() as group:
        group.create_task(microphone.be_silent(0.2), name="silent")
        await asyncio.sleep(0)
        group.create_task(microphone.speak(tone(0.2)), name="speaking")
    assert len(pieces) == 20
    assert all(at_s >= begun_s + 0.02 * i - 0.001 for i, (at_s, _) in enumerate(pieces))
    spoken = [i for i, (_, loud) in enumerate(pieces) if loud]
    assert spoken == list(range(spoken[0], spoken[0] + 10))


class Recording:
    """A channel that keeps the samples that the microphone sends."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []

    async def speak(self, pcm: Any) -> None:
        self.pieces.append(pcm)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, "<i2")])
async def test_a_microphone_takes_16_bit_pcm_as_bytes_or_as_an_array(kind: Any) -> None:
    channel, spoken = Recording(), tone(0.05)
    microphone = Microphone(cast("ClientChannel", channel), asyncio.get_running_loop().time)
    await microphone.speak(kind(spoken.astype("<i2").tobytes()))
    assert np.array_equal(np.concatenate(channel.pieces), spoken)


@pytest.mark.parametrize(
    ("pcm", "found"),
    [
        (np.zeros(960, np.float32), "float32 [960]"),
        (np.zeros(960, np.uint16), "uint16 [960]"),
        (np.zeros((1, 960), np.int16), "int16 [1, 960]"),
        ([0, 0], "list"),
        (b"\0\0\0", "3 bytes"),
    ],
)
async def test_a_microphone_refuses_other_samples_in_one_sentence(pcm: Any, found: str) -> None:
    channel = Recording()
    microphone = Microphone(cast("ClientChannel", channel), asyncio.get_running_loop().time)
    with pytest.raises(ClientError, match=re.escape(found)):
        await microphone.speak(pcm)
    assert not channel.pieces


async def test_an_interruption_keeps_what_was_played(server: Running) -> None:
    async with connect(server.http) as client:
        events = client.events()
        asking = asyncio.create_task(client.ask("long 50"), name="asking")
        async for event in events:
            if isinstance(event, AudioDelta):
                break
        await client.interrupt()
        answer = await asking
        assert answer.status == "cancelled"
        async for event in events:
            assert not isinstance(event, Error), event.message
            if isinstance(event, ItemTruncated):
                assert event.audio_end_ms < len(answer.pcm) // 24
                break
        assert (await client.ask("say: and on")).text == "and on"


async def test_events_have_types(server: Running) -> None:
    async with connect(server.http) as client:
        events = client.events()
        await client.ask("say: one two")
        kinds = [await anext(events) for _ in range(5)]
        seen = [type(event) for event in [*kinds, *[await anext(events) for _ in range(8)]]]
        assert {TextDelta, AudioDelta, Other} <= set(seen)
        while not isinstance(event := await anext(events), ResponseDone):
            pass
        assert event.status == "completed"


async def test_what_the_server_refuses_is_raised(server: Running) -> None:
    async with connect(server.http) as client:
        with pytest.raises(ClientError) as refused:
            await client.respond(output_modalities=["audio", "text"])
        assert refused.value.code == "invalid_value"
        failed = await client.ask("fail")
        assert failed.status == "failed"
        assert failed.error == "the script says that this answer fails"


async def test_a_server_that_goes_ends_all_that_waits() -> None:
    async with running(script_spec(drain_s=0)) as server, connect(server.http) as client:
        events = client.events()
        asking = asyncio.create_task(client.ask("long 400"), name="asking")
        listening = asyncio.create_task(client.answer(), name="listening")
        await eventually(lambda: any(server._leased()))
        server.server.leave()
        assert (await asking).status == "failed"
        with pytest.raises(ClientError, match="the connection has ended"):
            await listening
        assert isinstance([event async for event in events][-1], Error)
        with pytest.raises(ClientError):
            await client.ask("say: too late")


async def test_a_key_and_an_address_that_do_not_fit_are_one_sentence(tmp_path: Any) -> None:
    async with running(script_spec(keys_file=keys_file(tmp_path, "sk-one-0123456789"))) as server:
        with pytest.raises(ClientError, match="API key") as refused:
            async with connect(server.http):
                pass
        assert refused.value.code == "invalid_api_key"
        async with connect(server.http, key="sk-one-0123456789") as client:
            assert (await client.ask("say: open")).text == "open"
    for url in ("127.0.0.1:8000", "ftp://x", "http://127.0.0.1:1"):
        with pytest.raises(ClientError):
            async with connect(url):
                pass


async def test_events_that_nobody_reads_are_bounded() -> None:
    events = Events()
    for _ in range(UNREAD + 1):
        events.put(Other("x", {}))
    with pytest.raises(ClientError, match="events are unread"):
        await anext(events)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"type": 1}', '{"type": "response.done"}', "nonsense"])
def test_what_is_no_event_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)
