"""The events of ours for words in step with a voice: an answer's as it is spoken, the user's own while they speak."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from engine import Transcript
from engine.worker.models import script
from tests.app.rig import Client, Running, fail_at_long_speech, silence, talking, tone
from tests.app.transports.webrtc.caller import calling

ALIGNED = "parley.output_audio.alignment"
PARTIAL = "parley.input_audio_transcription.partial"
COMPLETED, DELTA, FAILED = (
    f"conversation.item.input_audio_transcription.{end}" for end in ("completed", "delta", "failed")
)
WORD_MS = 80
"""The tests' script speaks a word for two codec frames."""


def marks(client: Any) -> list[list[float]]:
    return [mark for event in client.of(ALIGNED) for mark in event["marks"]]


def word_ends(text: str) -> list[list[float]]:
    """What the script speaks: each word, with the space behind it, lasts as long as any other."""
    words = [f"{word} " for word in text.split()]
    words[-1] = words[-1].rstrip()
    return [[WORD_MS * n, len("".join(words[:n]))] for n in range(1, len(words) + 1)]


async def test_every_words_end_is_told_before_its_sound(client: Client) -> None:
    assert (await client.configure(parley={"alignment": True}))["parley"]["alignment"]
    response = await client.ask("say: the quick brown fox")
    assert marks(client) == word_ends("the quick brown fox")
    for at, event in enumerate(client.events):
        if event["type"] == ALIGNED:
            early = Client(client.socket)
            early.events = client.events[:at]
            assert early.audio_s() * 1000 < event["marks"][0][0]
            assert event["response_id"] == response["id"]
            assert event["item_id"] == response["output"][0]["id"]
            assert (event["output_index"], event["content_index"]) == (0, 0)


async def test_who_did_not_ask_is_told_nothing_of_it(client: Client) -> None:
    session = client.of("session.created")[0]["session"]
    assert [session["parley"][name] for name in ("alignment", "partials")] == [False, False]
    await client.configure(audio={"input": {"transcription": {}}})
    await client.ask("say: one two")
    await client.append(np.concatenate([tone(1.2), silence(0.8)]))
    await client.until("response.done")
    await client.ask("say: three", output_modalities=["text"])
    assert not [type for type in client.types() if type.startswith("parley.")]


async def test_one_answer_may_ask_for_itself_and_text_alone_has_no_marks(client: Client) -> None:
    await client.ask("say: one two", parley={"alignment": True})
    assert marks(client) == word_ends("one two")
    await client.ask("say: three four")
    await client.ask("say: five six", output_modalities=["text"], parley={"alignment": True})
    assert marks(client) == word_ends("one two")


@pytest.mark.parametrize("ours", [{"alignment": 1}, {"partials": "yes"}, 7])
async def test_a_wish_that_is_none_is_refused_in_one_sentence(client: Client, ours: Any) -> None:
    await client.send("session.update", session={"type": "realtime", "parley": ours, "instructions": "Lost."})
    assert (await client.error())["param"].startswith("session.parley")
    assert (await client.configure())["instructions"] == ""


async def test_an_answer_that_is_stopped_is_marked_no_further(client: Client) -> None:
    await client.configure(parley={"alignment": True})
    await (await client.say("long 200")).send("response.create")
    await client.until("response.output_audio.delta")
    await client.send("response.cancel")
    await client.until("response.done")
    await client.alive()
    after = client.types()[client.types().index("response.done") :]
    assert ALIGNED in client.types()
    assert ALIGNED not in after
    ends = [mark[1] for mark in marks(client)]
    assert ends == sorted(set(ends))


async def test_marks_that_were_missed_are_told_again(server: Running) -> None:
    async with talking(server) as client:
        ours = (await client.configure(parley={"resume": True, "alignment": True}))["parley"]
        await (await client.say("long 50")).send("response.create")
        await client.until(ALIGNED)
        last = client.events[-1]["parley"]["seq"]
        await client.until("response.output_audio.delta")
        client.socket.transport.abort()
    async with connect(f"{server.ws}?resume={ours['resume_token']}&after={last}", max_size=None) as socket:
        again = Client(socket)
        assert (await again.until("session.updated"))["session"]["parley"]["alignment"]
        await again.until("response.done")
    text = " ".join(f"word{i}" for i in range(50))
    assert marks(client) + marks(again) == word_ends(text)


async def test_in_a_call_they_come_over_the_data_channel(server: Running) -> None:
    async with calling(server) as call:
        await call.send("session.update", session={"type": "realtime", "parley": {"alignment": True, "partials": True}})
        await call.until("session.updated")
        await call.say("say: one two three")
        await call.until("output_audio_buffer.stopped")
        assert marks(call) == word_ends("one two three")
        call.mouth.say(np.concatenate([tone(1.3), silence(1.0)]))
        while not (await call.until(PARTIAL))["final"]:
            pass


async def test_the_users_words_are_told_while_they_speak_and_once_more_at_the_end(client: Client) -> None:
    """Without ``transcription``, too; its own event stays the last of one who asked for both."""
    assert (await client.configure(parley={"partials": True}))["parley"]["partials"]
    await client.append(tone(1.7))
    item_id = (await client.until("input_audio_buffer.speech_started"))["item_id"]
    while (event := await client.until(PARTIAL))["transcript"] != "1.5":
        assert not event["final"]
    await client.append(silence(0.8))
    await client.until("response.done")
    partials = client.of(PARTIAL)
    words = [event["transcript"] for event in partials]
    assert words[:3] == ["0.5", "1.0", "1.5"]
    assert words[-1].endswith("seconds")
    assert [event["final"] for event in partials] == [False] * (len(words) - 1) + [True]
    assert {event["item_id"] for event in partials} == {item_id}
    assert not client.of(COMPLETED)
    assert client.types().index(PARTIAL) < client.types().index("input_audio_buffer.committed")


async def test_deltas_of_the_words_come_while_the_user_speaks_and_make_up_the_transcript(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "Transcript", lambda text, **options: Transcript(f"It lasts {text}", **options))
    await client.configure(audio={"input": {"transcription": {}}})
    await client.append(tone(1.7))
    await client.until(DELTA)
    assert "input_audio_buffer.committed" not in client.types()
    await client.append(silence(0.8))
    transcript = (await client.until(COMPLETED))["transcript"]
    assert transcript.endswith("seconds")
    deltas = [event["delta"] for event in client.of(DELTA)]
    assert deltas[0] == "It lasts"
    assert "".join(deltas) == transcript
    assert not client.of(PARTIAL)


@pytest.mark.parametrize("detection", [{"type": "server_vad", "create_response": False}, None])
async def test_a_turn_without_an_answer_has_its_words_told_too(client: Client, detection: Any) -> None:
    await client.configure(audio={"input": {"turn_detection": detection}}, parley={"partials": True})
    await client.append(np.concatenate([tone(1.2), silence(0.8)]))
    if detection is None:
        await client.send("input_audio_buffer.commit")
    while not (last := await client.until(PARTIAL))["final"]:
        pass
    assert last["transcript"].endswith("seconds")
    assert len(client.of(PARTIAL)) > 2
    committed = client.of("conversation.item.done")[0]["item"]["id"]
    assert {event["item_id"] for event in client.of(PARTIAL)} == {committed}


async def test_a_turn_that_is_heard_anew_goes_on_under_the_same_item(client: Client) -> None:
    """In a pause the answer's request ends; when the user goes on, another one hears the turn from its beginning."""
    await client.configure(parley={"partials": True})
    await client.append(np.concatenate([tone(1.2), silence(0.3)]))
    while not client.events[-1].get("transcript", "").endswith("seconds"):
        await client.until(PARTIAL)
    assert not client.events[-1]["final"]
    await client.append(np.concatenate([tone(1.2), silence(0.8)]))
    await client.until("response.done")
    partials = client.of(PARTIAL)
    assert len({event["item_id"] for event in partials}) == 1
    assert [event["final"] for event in partials].count(True) == 1
    assert float(partials[-1]["transcript"].split()[0]) > 2.4
    assert len(client.of("input_audio_buffer.committed")) == 1


async def test_words_that_cannot_be_heard_to_their_end_have_a_last_word_too(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_long_speech(monkeypatch)
    await client.configure(parley={"partials": True}, audio={"input": {"turn_detection": None, "transcription": {}}})
    audio = base64.b64encode(tone(20.0).tobytes()).decode()
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}
    await client.send("conversation.item.create", item=item)
    await client.send("response.create")
    failed = await client.until(FAILED)
    before = client.events[client.events.index(failed) - 1]
    assert (before["type"], before["item_id"], before["final"]) == (PARTIAL, failed["item_id"], True)
