"""Server turn detection over a real socket: turns, barge-in, and the settings that change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.media.audio import decode_audio
from engine.audio.resampler import resample
from engine.worker.models import script
from tests.app.rig import ROOT, hum, running, script_spec, silence, tone

TURN = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "response.created",
]


async def speak(client: Any, seconds: float = 0.6, pause_s: float = 0.8) -> None:
    """An utterance in pieces of 20 ms, with the silence that ends it."""
    pcm = np.concatenate([tone(seconds), silence(pause_s)])
    for at in range(0, len(pcm), 480):
        await client.append(pcm[at : at + 480])


async def test_a_turn_is_detected_committed_and_answered_in_order(client: Any) -> None:
    await client.configure(audio={"input": {"transcription": {"model": "gpt-4o-transcribe"}}})
    await client.append(silence(0.5))
    await speak(client)
    response = (await client.until("response.done"))["response"]
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["transcript"].startswith("I heard 1.")
    types = [kind for kind in client.types() if kind in TURN]
    assert types[: len(TURN)] == TURN
    started, stopped = (client.of(kind)[0] for kind in TURN[:2])
    assert 150 <= started["audio_start_ms"] <= 250  # half a second of silence, less 300 ms of prefix
    assert "audio_end_ms" not in started
    assert stopped["audio_end_ms"] == pytest.approx(500 + 600 + 500, abs=70)
    ids = {event["item_id"] for event in client.events if event["type"].startswith("input_audio_buffer")}
    completed = client.of("conversation.item.input_audio_transcription.completed")[0]
    assert ids == {completed["item_id"]}
    assert completed["transcript"].endswith("seconds")
    assert client.types().index("conversation.item.done") < client.types().index(completed["type"])


async def test_the_second_turn_has_the_first_as_its_history(client: Any) -> None:
    for _ in range(2):
        await speak(client)
        await client.until("response.done")
    added = [event["item"] for event in client.of("conversation.item.added")]
    assert [item["role"] for item in added] == ["user", "assistant", "user", "assistant"]
    assert [event["previous_item_id"] for event in client.of("conversation.item.added")] == [
        None,
        *(item["id"] for item in added[:3]),
    ]


@pytest.mark.seed("A4.18")
async def test_a_barge_in_ends_the_answer_and_truncation_follows(client: Any) -> None:
    await (await client.say("long 400")).send("response.create")
    for _ in range(8):
        await client.until("response.output_audio.delta")
    await client.append(tone(1.3))
    await client.until("input_audio_buffer.speech_started")
    response = (await client.until("response.done"))["response"]
    assert response["status"] == "cancelled"
    assert response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    between = client.events[client.types().index("input_audio_buffer.speech_started") :]
    assert not [event for event in between if event["type"] == "response.output_audio.delta"]
    item_id = response["output"][0]["id"]
    await client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=200)
    await client.until("conversation.item.truncated")
    await speak(client)
    assert (await client.until("response.done"))["response"]["status"] == "completed"
    assert not client.of("error")


@pytest.mark.parametrize(("seconds", "backchannel_ms"), [(0.15, 1000), (0.3, 1000), (0.15, 0)])
@pytest.mark.slow
async def test_short_speech_over_an_answer_stops_it_only_if_the_client_wants_that(
    client: Any, seconds: float, backchannel_ms: int
) -> None:
    """Otherwise the answer is sent to its end, and no event of a turn comes."""
    await client.configure(
        audio={"input": {"turn_detection": {"type": "server_vad", "backchannel_ms": backchannel_ms}}}
    )
    await (await client.say("long 60")).send("response.create")
    await client.until("response.output_audio.delta")
    await client.append(tone(seconds))
    await client.append(silence(0.7))
    status = (await client.until("response.done"))["response"]["status"]
    if backchannel_ms:
        assert status == "completed"
        assert not [event for event in client.types() if event.startswith("input_audio_buffer")]
    else:
        assert status == "cancelled"
        await client.until("input_audio_buffer.committed")


@pytest.mark.parametrize(("seconds", "outcome"), [(0.25, "parley.output_audio.resumed"), (1.3, TURN[0])])
@pytest.mark.slow
async def test_a_client_that_can_pause_is_told_when_to_pause_and_then_whether_to_go_on(
    client: Any, seconds: float, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.ScriptEars, "_hear", hum)
    assert (await client.configure(parley={"pauses": True}))["parley"]["pauses"]
    await (await client.say("long 60")).send("response.create")
    await client.until("response.output_audio.delta")
    await client.append(tone(seconds))
    await client.append(silence(0.7))
    await client.until("response.done")
    pause = ["parley.output_audio.paused", "parley.output_audio.resumed", TURN[0]]
    assert [kind for kind in client.types() if kind in pause] == [pause[0], outcome]


async def test_without_interrupt_response_the_answer_goes_on(client: Any) -> None:
    detection = {"type": "server_vad", "interrupt_response": False, "silence_duration_ms": 200}
    await client.configure(audio={"input": {"turn_detection": detection}})
    await (await client.say("long 30")).send("response.create")
    await client.until("response.output_audio.delta")
    await speak(client, 0.3, 0.4)
    await client.until("input_audio_buffer.committed")
    for _ in range(2):  # what was said meanwhile is answered behind it
        assert (await client.until("response.done"))["response"]["status"] == "completed"
    assert not client.of("error")


async def test_without_create_response_the_client_asks_itself(client: Any) -> None:
    detection = {"type": "server_vad", "create_response": False}
    audio = {"input": {"turn_detection": detection, "transcription": {}}}
    assert (await client.configure(audio=audio))["audio"]["input"]["turn_detection"]["create_response"] is False
    await speak(client)
    await client.until("conversation.item.input_audio_transcription.completed")
    assert not client.of("response.created")
    await client.send("response.create")
    assert (await client.until("response.done"))["response"]["status"] == "completed"


async def test_semantic_vad_is_accepted_and_ends_turns(client: Any) -> None:
    session = await client.configure(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}})
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "semantic_vad",
        "eagerness": "high",
        "create_response": True,
        "interrupt_response": True,
        "end_of_turn": "auto",
        "backchannel_ms": 1000,
        "speaker": "auto",
        "voiceprint": None,
        "target_cuts": None,
    }
    await speak(client, 0.6, 1.0)  # a tone is held, as by one who goes on: a longer wait
    assert (await client.until("response.done"))["response"]["status"] == "completed"


async def test_a_clear_while_the_user_speaks_forgets_the_turn(client: Any) -> None:
    await client.append(tone(0.5))
    await client.until("input_audio_buffer.speech_started")
    await client.send("input_audio_buffer.clear")
    await client.until("input_audio_buffer.cleared")
    await client.append(silence(1.0))
    await client.alive()
    assert not client.of("input_audio_buffer.committed")


async def test_a_commit_by_hand_ends_the_turn_that_was_detected(client: Any) -> None:
    await client.append(tone(0.5))
    started = await client.until("input_audio_buffer.speech_started")
    await client.send("input_audio_buffer.commit")
    assert (await client.until("input_audio_buffer.committed"))["item_id"] == started["item_id"]
    await client.append(silence(1.0))
    await client.send("response.create")
    assert (await client.until("response.done"))["response"]["status"] == "completed"
    assert len(client.of("input_audio_buffer.committed")) == 1


async def test_switching_detection_off_in_mid_speech_drops_the_turn(client: Any) -> None:
    await client.append(tone(0.5))
    await client.until("input_audio_buffer.speech_started")
    await client.configure(audio={"input": {"turn_detection": None}})
    await client.send("input_audio_buffer.commit")
    assert (await client.error())["code"] == "input_audio_buffer_commit_empty"
    await client.alive()


async def test_instructions_that_change_in_mid_speech_reach_the_answer(client: Any) -> None:
    """The request that listens along is opened anew, and hears the turn from its start."""
    await client.append(tone(0.5))
    await client.until("input_audio_buffer.speech_started")
    await client.configure(instructions="Be brief.")
    await client.append(silence(0.8))
    response = (await client.until("response.done"))["response"]
    seconds = float(response["output"][0]["content"][0]["transcript"].split()[2])
    assert seconds >= 0.6  # all that was said, and the pause after which the answer was begun


async def test_a_turn_that_never_ends_is_cut_at_the_limit(serve_with: Any, talk: Any) -> None:
    async with serve_with(limits={"audio_s": 1.5}) as server, talk(server) as client:
        await client.append(tone(1.5))
        await client.append(silence(0.3))
        await client.until("input_audio_buffer.committed")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        assert not client.of("error")


async def test_a_recorded_voice_is_a_turn_and_noise_is_none(talk: Any) -> None:
    """The real detector: a voice in steady noise, then the noise alone."""
    voice = resample(decode_audio((ROOT / "tests/data/spoken/in_001.ogg").read_bytes(), limit_s=30), 16_000, 24_000)
    noise = np.random.default_rng(1).normal(0, 60, len(voice) + 3 * 24_000)
    noise[24_000 : 24_000 + len(voice)] += voice
    async with running(script_spec()) as server, talk(server) as client:
        pcm = noise.astype(np.int16)
        for at in range(0, len(pcm), 480):
            await client.append(pcm[at : at + 480])
        response = (await client.until("response.done"))["response"]
        assert response["output"][0]["content"][0]["transcript"].startswith("I heard")
        started, stopped = (
            client.of("input_audio_buffer.speech_started"),
            client.of("input_audio_buffer.speech_stopped"),
        )
        assert (len(started), len(stopped)) == (1, 1)
        assert 500 <= started[0]["audio_start_ms"] <= 1_300
        assert 1_000 < stopped[0]["audio_end_ms"] <= 1_000 + len(voice) / 24 + 600
        await client.append((np.random.default_rng(2).normal(0, 60, 48_000)).astype(np.int16))
        await client.alive()
        assert len(client.of("input_audio_buffer.speech_started")) == 1
