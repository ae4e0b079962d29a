"""The ears that ask a transcription server: what is sent, what is heard, and what may go wrong."""

from __future__ import annotations

import asyncio
import io
import re
import wave
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.chunk import Speech, Transcript
from engine.core import MIC_RATE_HZ, NO_HINTS, SpeechHints
from engine.errors import ConfigError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.remote import watch
from engine.worker.stage import StageConfig
from tests.engine.fakes import Desk, only, opened, turns, until, working
from tests.engine.worker.llm.scripted import Connection, Reply, Scripted, answer, scripted

LOUD = (np.sin(np.arange(MIC_RATE_HZ) / 9) * 8000).astype(np.int16)


def ears(url: str, **options: Any) -> Any:
    return make("asr.openai", "ears", 0, StageConfig(options={"url": url, "model": "whisper-1", **options}))


@asynccontextmanager
async def asking(*replies: Reply, **options: Any) -> AsyncGenerator[tuple[Scripted, Desk]]:
    """A server that answers so, and a worker whose ears ask it."""
    async with (
        scripted(*replies, models=answer(404)) as server,
        working(ears(server.url, **options)) as desk,
    ):
        yield server, desk


async def heard(desk: Desk, run: str, pcm: np.ndarray = LOUD, hints: SpeechHints = NO_HINTS) -> list[Transcript]:
    """What the ears make of a turn, which comes in pieces of 20 ms."""
    desk.put(opened(run, "ears", live=True, hints=hints))
    for at in range(0, len(pcm), 320):
        desk.put(messages.Feed(run, Speech(pcm[at : at + 320])))
    desk.put(messages.End(run))
    await desk.ended(run)
    return only(Transcript, [emit.chunk for emit in desk.of(messages.Emit, run)])


def failure(desk: Desk, run: str) -> str:
    (failed,) = desk.of(messages.Failed, run)
    return failed.message


def parts(body: bytes) -> dict[str, bytes]:
    """The fields of a form."""
    boundary = body.partition(b"\r\n")[0]
    found: dict[str, bytes] = {}
    for part in body.split(boundary)[1:-1]:
        head, _, data = part.strip(b"\r\n").partition(b"\r\n\r\n")
        named = re.search(rb'name="(\w+)"', head)
        assert named is not None
        found[named[1].decode()] = data
    return found


def text(words: str) -> Reply:
    return answer(200, {"text": words})


async def test_a_turn_is_sent_as_one_recording_and_its_words_are_the_transcript(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-key")
    key.chmod(0o600)
    async with asking(text("  Good\nday. "), key_file=str(key)) as (server, desk):
        assert await heard(desk, "a") == [Transcript("Good day.", final=True)]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/audio/transcriptions")
    assert asked.head["authorization"] == "Bearer secret-key"
    form = parts(asked.body)
    assert {name: data for name, data in form.items() if name != "file"} == {
        "model": b"whisper-1", "response_format": b"json",
    }  # fmt: skip
    with wave.open(io.BytesIO(form["file"])) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, MIC_RATE_HZ)
        assert file.readframes(1 << 20) == LOUD.tobytes()


async def test_language_prompt_and_fields_are_sent() -> None:
    options = {"language": "de-AT", "prompt": "Parley", "fields": {"temperature": 0, "response_format": None}}
    async with asking(answer(200, b"Servus!\n", "text/plain; charset=utf-8"), **options) as (server, desk):
        assert await heard(desk, "a") == [Transcript("Servus!", final=True)]
    form = parts(server.asked[0].body)
    del form["file"]
    assert form == {"model": b"whisper-1", "language": b"de", "prompt": b"Parley", "temperature": b"0"}


async def test_the_hints_of_a_session_are_sent() -> None:
    hints = SpeechHints(languages=("fr-CA",), prompt="About Oslo.", keywords=("Tromsø", "Bodø"))
    async with asking(answer(200, b"Salut !\n", "text/plain"), language="de", prompt="Parley") as (server, desk):
        await heard(desk, "a", hints=hints)
    form = parts(server.asked[0].body)
    assert form["language"] == b"fr"
    assert form["prompt"].decode() == "Parley\nTromsø, Bodø\nAbout Oslo."


@pytest.mark.parametrize("pcm", [LOUD[:0], np.zeros(16_000, np.int16), (LOUD // 200).astype(np.int16)])
async def test_silence_is_not_sent_and_not_understood(pcm: np.ndarray) -> None:
    async with asking(text("Thank you.")) as (server, desk):
        assert await heard(desk, "a", pcm) == [Transcript("", final=True, understood=False)]
    assert server.asked == []


async def test_a_short_word_in_a_long_silence_is_sent() -> None:
    pcm = np.zeros(MIC_RATE_HZ * 20, np.int16)
    pcm[-300:] = LOUD[:300]
    async with asking(text("Yes.")) as (_, desk):
        assert await heard(desk, "a", pcm) == [Transcript("Yes.", final=True)]


@pytest.mark.parametrize("words", ["", " . ", "[BLANK_AUDIO]", "(upbeat music) *laughs*"])
async def test_what_the_server_hears_no_words_in_is_not_understood(words: str) -> None:
    async with asking(text(words)) as (_, desk):
        assert await heard(desk, "a") == [Transcript("", final=True, understood=False)]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (answer(401, {"error": "no"}), r"requires an API key \(401\)"),
        (answer(404, {"detail": "Not Found"}), r"has no model 'whisper-1', or no API at http://.*/v1/ \(404\)"),
        (answer(400, {"error": {"message": "too short"}}), r"does not take this request \(400\), and says: too short"),
        (answer(429, {}), r"accepts no more requests now \(429\)"),
        (answer(500, {"error": "cuda"}), r"failed \(500\), and says: cuda"),
        (answer(302, location="http://10.0.0.1/"), r"redirects requests \(302\)"),
        (answer(200, {"error": {"message": "busy"}}), "returned no transcript, and says: busy"),
        (answer(200, {"text": None}), "returned no transcript. Check the url."),
        (answer(200, b"<html>", "text/html"), "returned no transcript. Check the url."),
        (answer(200, b"[" * 90_000), "returned no transcript"),
    ],
)
async def test_what_goes_wrong_is_one_sentence_and_the_next_is_heard(reply: Reply, told: str) -> None:
    async with asking(reply, text("Good day.")) as (_, desk):
        await heard(desk, "a")
        error = failure(desk, "a")
        assert error.startswith("The transcription server at 127.0.0.1:")
        assert re.search(told, error), error
        assert await heard(desk, "b") == [Transcript("Good day.", final=True)]


async def hung(connection: Connection) -> bool:
    await connection.gone()
    raise ConnectionResetError


async def test_words_that_do_not_come_are_given_up() -> None:
    async with asking(hung, answer_s=0.05) as (_, desk):
        await heard(desk, "a")
        assert "has not begun its answer within 0.05 s" in failure(desk, "a")


async def test_who_leaves_ends_the_request_at_the_server() -> None:
    async with asking(hung) as (server, desk):
        desk.put(opened("a", "ears", live=True), messages.Feed("a", Speech(LOUD)), messages.End("a"))
        await until(lambda: len(server.asked) == 1)
        desk.put(messages.Close("a"))
        await asyncio.wait_for(server.aborted.wait(), 20)
        await turns()
        assert set(desk.worker.free) == {"ears"}


async def test_a_turn_without_an_end_is_refused_before_it_is_all_in_memory() -> None:
    async with asking(text("never")) as (server, desk):
        desk.put(opened("a", "ears", live=True))
        for _ in range(12):
            desk.put(messages.Feed("a", Speech(np.zeros(MIC_RATE_HZ * 60, np.int16))))
        await desk.ended("a")
        assert failure(desk, "a") == "A turn of more than 10 minutes cannot be transcribed; speak in shorter turns."
    assert server.asked == []


async def test_a_server_that_is_down_is_told_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PROBE_EVERY_S", 0.02)
    async with scripted() as gone:
        url, port = gone.url, gone.port
    stage = ears(url)
    async with working(stage) as desk:
        await until(lambda: bool(stage.unavailable))
        await heard(desk, "a")
        assert failure(desk, "a") == stage.unavailable
        assert "cannot be reached. Is it running?" in stage.unavailable
        async with scripted(text("Good day."), port=port, models=answer(200, {"data": [{"id": "other"}]})) as server:
            await until(lambda: not stage.unavailable)
            assert await heard(desk, "b") == [Transcript("Good day.", final=True)]
            assert len(server.asked) == 1
        await heard(desk, "c")
        assert stage.unavailable


def test_what_the_ears_say_of_themselves() -> None:
    info = ears("https://hears.example/v1", language="de-AT").info
    assert info.hears_only
    assert info.replay == "never"
    assert info.facets.heard_languages == ("de-AT",)
    assert info.facets.leaving == "Conversations leave this machine: hears.example gets their sound."
    assert ears("http://localhost:8000").info.facets.leaving == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "127.0.0.1:8880"}, "options.url: is not a server URL"),
        ({"language": "German!"}, "options.language: 'German!' is not a language tag"),
        ({"fields": {"file": "x"}}, "options.fields: must not contain file"),
        ({"answer_s": 0}, "options.answer_s: must be a positive, finite number"),
        ({"url": "http://box:1/v1", "key_file": "k"}, "The key would go to box:1 unencrypted"),
    ],
)
def test_options_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ears(**{"url": "http://127.0.0.1:8000/v1", **options})
