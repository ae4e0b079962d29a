"""The voice that asks a speech server: what is asked, in which order; what it sounds like; and what may go wrong."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.audio.resampler import resample
from engine.chunk import Audio, Text, VoiceText
from engine.core import SPEAKER_RATE_HZ, Request
from engine.errors import ConfigError
from engine.ipc import messages
from engine.stream import Stream
from engine.worker.pace import OneFrame
from engine.worker.process.stage_loader import make
from engine.worker.remote import watch
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.tts.clauses import Clauses
from tests.engine.fakes import Desk, only, opened, turns, until, working
from tests.engine.worker.llm.scripted import (
    STREAM_HEAD,
    Connection,
    Reply,
    Scripted,
    answer,
    broken,
    chunk,
    scripted,
    sound,
)
from tests.engine.worker.remote.test_pcm_stream import wav

TEXT = "Hello world, this is a test of the voice. Today it is very fine; we go and come again. One two three? "
LETTER_SAMPLES = 400


def samples(text: str) -> np.ndarray:
    """What a text sounds like: int16, as long as its letters are many."""
    noise = np.random.default_rng(zlib.crc32(text.encode()))
    return noise.integers(-20_000, 20_000, len(text) * LETTER_SAMPLES).astype("<i2")


def clauses_of(text: str) -> list[str]:
    cutter = Clauses()
    found = [*cutter.feed(text, 0), cutter.flush()]
    return [" ".join(clause.text.split()) for clause in found if clause is not None]


def expected(text: str) -> np.ndarray:
    return np.concatenate([samples(clause) for clause in clauses_of(text)]) / np.float32(32768)


class Talker:
    """A server's reply: the text that is asked for, as sound. ``cut`` bytes a piece; ``wav`` puts a head before it."""

    def __init__(self, cut: int = 4801, head: bytes = b"", kind: str = "audio/pcm") -> None:
        self.server: Scripted
        self._cut, self._head, self._kind = cut, head, kind

    async def __call__(self, connection: Connection) -> bool | None:
        data = self._head + samples(self.server.asked[-1].body["input"]).tobytes()
        pieces = [data[at : at + self._cut] for at in range(0, len(data), self._cut)]
        return await sound(*pieces, kind=self._kind)(connection)


def voice(url: str, **options: Any) -> Any:
    return make("tts.openai", "voice", 0, StageConfig(options={"url": url, "model": "m", **options}, slots=16))


@asynccontextmanager
async def asking(*replies: Reply, **options: Any) -> AsyncGenerator[tuple[Scripted, Desk]]:
    """A server that answers so, and a worker whose voice asks it."""
    async with scripted(*replies, models=answer(404)) as server:
        for reply in replies:
            if isinstance(reply, Talker):
                reply.server = server
        async with working(voice(server.url, **options)) as desk:
            yield server, desk


def speaking(desk: Desk, run: str, text: str, **fields: Any) -> None:
    pieces = [VoiceText(text[at : at + 5], at) for at in range(0, len(text), 5)]
    desk.put(opened(run, "voice", **{"credit": 10_000, **fields}), *(messages.Feed(run, piece) for piece in pieces))
    desk.put(messages.End(run))


async def said(desk: Desk, run: str, text: str, **fields: Any) -> list[Audio]:
    speaking(desk, run, text, **fields)
    await desk.ended(run)
    return sounds(desk, run)


def sounds(desk: Desk, run: str) -> list[Audio]:
    return only(Audio, [emit.chunk for emit in desk.of(messages.Emit, run)])


def whole(found: Sequence[Audio]) -> np.ndarray:
    return np.concatenate([audio.wave for audio in found]) if found else np.empty(0, np.float32)


def failure(desk: Desk, run: str) -> str:
    (failed,) = desk.of(messages.Failed, run)
    return failed.message


@pytest.mark.parametrize("cut", [333, 4800, 1 << 20])
async def test_an_answer_sounds_as_the_server_says_its_clauses_in_order(cut: int) -> None:
    async with asking(Talker(cut)) as (server, desk):
        assert np.array_equal(whole(await said(desk, "a", TEXT)), expected(TEXT))
    assert [one.body["input"] for one in server.asked] == clauses_of(TEXT)
    assert {one.path for one in server.asked} == {"/v1/audio/speech"}


async def test_what_is_asked_is_what_servers_take_and_no_more() -> None:
    async with asking(Talker()) as (server, desk):
        await said(desk, "a", "Good day.")
    assert server.asked[0].body == {"model": "m", "input": "Good day.", "response_format": "pcm", "stream": True}
    assert "authorization" not in server.asked[0].head


async def test_voice_speed_language_fields_and_key_are_sent(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-key\n")
    key.chmod(0o600)
    options = {
        "voices": ["anna", "bert"], "language": "de", "key_file": str(key),
        "fields": {"language": "German", "stream": None, "seed": 1},
    }  # fmt: skip
    async with asking(Talker(), **options) as (server, desk):
        await said(desk, "a", "Guten Tag.")
        await said(desk, "b", "Guten Tag.", voice="bert", speed=1.5)
    first, second = (one.body for one in server.asked)
    assert first["voice"] == "anna"
    assert "speed" not in first
    assert (second["voice"], second["speed"]) == ("bert", 1.5)
    assert (first["language"], first["seed"], "stream" in first) == ("German", 1, False)
    assert server.asked[0].head["authorization"] == "Bearer secret-key"


async def test_many_answers_at_once_are_each_their_own() -> None:
    texts = [" ".join(TEXT.split()[n:]) for n in range(8)]
    async with asking(Talker()) as (_, desk):
        found = await asyncio.gather(*(said(desk, f"{n}", text) for n, text in enumerate(texts)))
    for text, audio in zip(texts, found, strict=True):
        assert np.array_equal(whole(audio), expected(text))


async def test_marks_lead_through_the_text_to_its_end() -> None:
    text = TEXT.strip()
    async with asking(Talker()) as (_, desk):
        found = await said(desk, "a", text)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (len(whole(found)), len(text))
    assert len(marks) >= 15, "words have marks of their own"
    spoken = len("".join(clauses_of(text)[:-1]))  # of the last clause the voice's pace is known
    for at, characters in marks:
        if characters > spoken + len(clauses_of(text)):
            assert abs(at / LETTER_SAMPLES - characters) < 6, "a mark is some letters off at most"


async def test_sound_of_another_rate_is_resampled() -> None:
    async with asking(Talker(), rate_hz=16_000) as (_, desk):
        found = await said(desk, "a", "Good day.")
    given: Any = samples("Good day.") / np.float32(32768)
    assert np.allclose(whole(found), np.clip(resample(given, 16_000, SPEAKER_RATE_HZ), -1, 1), atol=1e-6)


async def test_a_wav_in_place_of_samples_is_read_by_its_header_clause_by_clause() -> None:
    """One server's second clause may have another rate: its head counts, and the marks go on."""
    heads = [wav(b"", channels=2, rate_hz=48_000, size=0xFFFFFFFF), b"", wav(b"", rate_hz=22_050, size=0)]
    async with asking(*(Talker(7777, head, "audio/wav") for head in heads)) as (_, desk):
        found = await said(desk, "a", TEXT)
    parts: list[np.ndarray] = []
    for clause, rate_hz in zip(clauses_of(TEXT), (48_000, 24_000, 22_050), strict=True):
        wave: Any = samples(clause) / np.float32(32768)
        wave = wave.reshape(-1, 2).mean(axis=1) if rate_hz == 48_000 else wave
        parts.append(np.clip(resample(wave, rate_hz, SPEAKER_RATE_HZ), -1, 1))
    assert np.allclose(whole(found), np.concatenate(parts), atol=1e-6)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (len(whole(found)), len(TEXT))


class Held:
    """A reply whose sound begins, and goes on once it may; it notes who waits, and who left."""

    def __init__(self) -> None:
        self.begin, self.go_on, self.left = asyncio.Semaphore(0), asyncio.Event(), asyncio.Semaphore(0)

    async def __call__(self, connection: Connection) -> bool | None:
        await self.begin.acquire()
        await connection.send(STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", b"audio/pcm"))
        await connection.send(chunk(bytes(4800)))
        going, gone = asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(connection.gone())
        await asyncio.wait([going, gone], return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            going.cancel()
            self.left.release()
            return False
        gone.cancel()
        await asyncio.wait([gone])
        await connection.send(chunk(bytes(4800)) + b"0\r\n\r\n")
        return None


async def test_the_next_clause_is_asked_for_once_one_sounds_and_never_two() -> None:
    held = Held()
    async with asking(held) as (server, desk):
        speaking(desk, "a", TEXT)
        await until(lambda: len(server.asked) == 1)
        await turns(50)
        assert len(server.asked) == 1, "a first sound has the server to itself"
        held.begin.release()
        await until(lambda: len(server.asked) == 2)
        held.begin.release()  # the second sounds, too, while the first is still heard
        await turns(50)
        assert len(server.asked) == 2
        assert len(whole(sounds(desk, "a"))) == 2399, "of the second nothing is heard before the first has ended"
        held.go_on.set()
        held.begin.release()
        await desk.ended("a")
        assert len(server.asked) == len(clauses_of(TEXT)) == 3
        assert len(whole(sounds(desk, "a"))) == 3 * 4800


async def test_text_is_read_on_while_the_voice_is_behind() -> None:
    held = Held()
    async with asking(held) as (_, desk):
        desk.put(opened("a", "voice"), *(messages.Feed("a", Text(f"Word {n}. ", 8 * n)) for n in range(50)))
        await until(lambda: sum(grant.n for grant in desk.of(messages.Grant, "a")) > 40)
        desk.put(messages.Close("a"))


async def test_who_leaves_ends_what_is_under_way_at_the_server_and_hears_nothing_more() -> None:
    held = Held()
    async with asking(held) as (server, desk):
        speaking(desk, "a", TEXT)
        for n in (1, 2):
            held.begin.release()
            await until(lambda n=n: len(server.asked) == n)
        await until(lambda: bool(sounds(desk, "a")))
        desk.put(messages.Close("a"))
        for _ in range(2):
            await asyncio.wait_for(held.left.acquire(), 20)
        held.go_on.set()
        await turns(50)
        assert len(whole(sounds(desk, "a"))) == 2399
        assert desk.worker.free == {"voice": 16}, "the slot is free again"
        assert len(server.asked) == 2


async def test_twenty_who_leave_keep_nobody_waiting() -> None:
    held, talker = Held(), Talker()
    async with asking(*[held] * 20, talker) as (server, desk):
        for batch in range(2):
            for n in range(10):
                desk.put(opened(f"{batch}{n}", "voice"), messages.Feed(f"{batch}{n}", Text("Good day. ", 0)))
                desk.put(messages.End(f"{batch}{n}"))
            await until(lambda batch=batch: len(server.asked) == 10 * (batch + 1))
            for n in range(10):
                desk.put(messages.Close(f"{batch}{n}"))
        assert np.array_equal(whole(await said(desk, "next", "Good day.")), expected("Good day."))


async def test_an_answer_ends_with_the_longest_sound_that_it_may_have() -> None:
    async def endless(connection: Connection) -> bool:
        await connection.send(STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", b"audio/pcm"))
        await connection.send(chunk(bytes(4 * SPEAKER_RATE_HZ)))
        await connection.gone()
        return False

    async with asking(endless) as (_, desk):
        assert len(whole(await said(desk, "a", "Good day.", max_audio_s=1.0))) == SPEAKER_RATE_HZ


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (answer(401, {"error": "no"}), r"requires an API key \(401\): set key_file"),
        (answer(404, {"detail": "Not Found"}), r"has no model 'm', or no API at http://.*/v1/ \(404\)"),
        (answer(400, {"error": {"message": "no voice af"}}), r"does not take this request \(400\), and says: no voice"),
        (answer(429, {}), r"accepts no more requests now \(429\). Try again later."),
        (answer(500, {"error": "cuda"}), r"failed \(500\), and says: cuda"),
        (answer(302, location="http://10.0.0.1/"), r"redirects requests \(302\)"),
        (answer(200, {"error": {"message": "busy"}}), "returned text instead of audio, and says: busy"),
        (answer(200, b"<html>", "text/html"), "returned text instead of audio. Check the url."),
        (answer(200, b"ID3" + bytes(99), "audio/mpeg"), "returned compressed audio instead of raw samples"),
        (answer(200, wav(b"", bits=24), "audio/wav"), "a WAV file that cannot be read"),
        (answer(200, b"", "audio/pcm"), "returned no audio for this text. Does its voice support the language?"),
        (sound(bytes(480), ends=False), "closed the connection before its answer was complete"),
    ],
)
async def test_what_goes_wrong_is_one_sentence_and_the_next_is_answered(reply: Reply, told: str) -> None:
    talker = Talker()
    async with asking(reply, reply, talker) as (server, desk):
        await said(desk, "a", "Good day.")
        error = failure(desk, "a")
        assert error.startswith("The speech server at 127.0.0.1:")
        assert "Good day" not in error
        assert re.search(told, error), error
        server.replies = [talker]
        assert np.array_equal(whole(await said(desk, "b", "Good day.")), expected("Good day."))


@pytest.mark.parametrize("head", [b"", wav(b"", size=0)])
async def test_a_stream_that_stalls_is_given_up(head: bytes) -> None:
    async def silent(connection: Connection) -> bool:
        await connection.send(STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", b"audio/pcm"))
        if head:
            await connection.send(chunk(head))
        await connection.gone()
        return False

    async with asking(silent, first_sound_s=0.05) as (_, desk):
        await said(desk, "a", "Good day.")
        assert "has not begun its answer within 0.05 s" in failure(desk, "a")
    async with asking(Held(), stall_s=0.05) as (server, desk):
        held = server.replies[0]
        assert isinstance(held, Held)
        held.begin.release()
        found = await said(desk, "a", "Good day.")
        assert "has sent nothing more for 0.05 s" in failure(desk, "a")
        assert len(whole(found)) == 2399, (
            "what came has been heard, but for the sample that the marks at its end stand at"
        )


async def test_an_error_of_the_next_clause_comes_behind_the_sound_of_this_one() -> None:
    first = Talker()
    async with asking(first, answer(500, {})) as (_, desk):
        found = await said(desk, "a", TEXT)
        assert "failed (500)" in failure(desk, "a")
        assert np.array_equal(whole(found), samples(clauses_of(TEXT)[0]) / np.float32(32768))


async def test_a_clause_without_a_sound_is_passed_over_where_others_have_one() -> None:
    async with asking(sound(), Talker()) as (_, desk):
        found = await said(desk, "a", TEXT)
        first = clauses_of(TEXT)[0]
        assert np.array_equal(whole(found), expected(TEXT)[len(samples(first)) :])
        assert found[-1].marks[-1] == (len(whole(found)), len(TEXT))


async def test_marks_and_emoji_alone_are_not_sent() -> None:
    async with asking(Talker()) as (server, desk):
        assert await said(desk, "a", "… 🎈🎈🎈 !") == []
        assert desk.of(messages.End, "a")
    assert server.asked == []


@pytest.mark.parametrize("text", ["a" * 20_000, "🎈" * 300 + " Well.", "\ud800 Hi \0there.", "今日は" * 2000])
async def test_odd_texts_are_sent_in_bounded_pieces_without_loss(text: str) -> None:
    async with asking(sound(bytes(480))) as (server, desk):
        await said(desk, "a", text, max_audio_s=1e5)
        assert desk.of(messages.End, "a"), failure(desk, "a")
    sent = "".join(one.body["input"] for one in server.asked)
    letters = [one for one in text if one.isalnum()]
    assert [one for one in sent if one.isalnum()] == letters
    assert max(len(one.body["input"]) for one in server.asked) <= 1000


async def test_a_server_that_takes_no_stream_is_asked_without_and_that_is_remembered() -> None:
    async def strict(connection: Connection) -> bool | None:
        refused = "stream" in talker.server.asked[-1].body
        return await (answer(422, {"detail": "extra fields not permitted"}) if refused else talker)(connection)

    talker = Talker()
    async with asking(strict) as (server, desk):
        talker.server = server
        for run in ("a", "b"):
            assert np.array_equal(whole(await said(desk, run, "Good day.")), expected("Good day."))
    assert ["stream" in one.body for one in server.asked] == [True, False, False]


async def test_a_connection_that_breaks_before_its_answer_is_opened_once_more() -> None:
    async with asking(broken(head=False), Talker()) as (server, desk):
        assert np.array_equal(whole(await said(desk, "a", "Good day.")), expected("Good day."))
        assert len(server.asked) == 2
        server.replies = [broken(head=False)]
        await said(desk, "b", "Good day.")
        assert "closed the connection before its answer was complete" in failure(desk, "b")
        assert len(server.asked) == 4


async def test_a_voice_that_there_is_not_is_told_with_those_that_there_are() -> None:
    async with asking(Talker(), voices=["anna", "bert"], voice="bert") as (server, desk):
        await said(desk, "a", "Good day.", voice="carl")
        assert failure(desk, "a") == "There is no voice 'carl'; choose one of bert, anna."
    assert server.asked == []


async def test_a_server_that_is_down_is_told_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PROBE_EVERY_S", 0.02)
    async with scripted() as gone:
        url, port = gone.url, gone.port
    talker, stage = Talker(), voice(url)
    async with working(stage) as desk:
        await until(lambda: bool(stage.unavailable))
        assert "cannot be reached. Is it running?" in stage.unavailable
        await said(desk, "a", "Good day.")
        assert "cannot be reached. Is it running?" in failure(desk, "a")
        async with scripted(talker, port=port, models=answer(404)) as server:
            talker.server = server
            await until(lambda: not stage.unavailable)
            assert np.array_equal(whole(await said(desk, "b", "Good day.")), expected("Good day."))
            assert len(server.asked) == 1, "nobody has it say anything but this"
        await said(desk, "c", "Good day.")
        assert stage.unavailable
        assert desk.worker.beat("w").unavailable == {"voice": stage.unavailable}


def test_what_the_voice_says_of_itself() -> None:
    info = voice("https://speech.example/v1", voices=["anna", "bert"], voice="bert", language="de-AT").info
    assert [(one.id, one.language) for one in info.facets.voices] == [("bert", "de-AT"), ("anna", "de-AT")]
    assert info.facets.languages == ("de-AT",)
    assert info.facets.leaving == "Conversations leave this machine: speech.example gets their text."
    assert (info.replay, info.slots) == ("never", 16)
    assert voice("http://127.0.0.1:8880").info.facets.leaving == ""
    assert voice("http://127.0.0.1:8880").info.facets.voices == ()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "127.0.0.1:8880"}, "options.url: is not a server URL"),
        ({"model": ""}, "options.model: must be the name of a model"),
        ({"rate_hz": 0}, "options.rate_hz: must be 4000 to 192000"),
        ({"voices": ["a"], "voice": "b"}, r"options.voice: 'b' is not one of voices \(a\)"),
        ({"language": "German!"}, "options.language: 'German!' is not a language tag"),
        ({"fields": {"input": "x"}}, "options.fields: must not contain input"),
        ({"stall_s": 0}, "options.stall_s: must be a positive, finite number"),
        ({"voise": "a"}, r"options.voise: unknown key \(did you mean 'voice'\?\)"),
        ({"url": "http://box:1/v1", "key_file": "k"}, "The key would go to box:1 unencrypted"),
    ],
)
def test_options_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        voice(**{"url": "http://127.0.0.1:8880/v1", **options})


@pytest.mark.parametrize("later", range(1, 6))
async def test_a_voice_that_is_cancelled_twice_leaves_no_task(later: int) -> None:
    """The run ends, and its client leaves before the voice has cleaned up."""

    async def speak(stage: Any, inputs: Stream) -> None:
        async for _ in stage.adapt(StageRequest(Request(id="r", session="s", messages=()), 0, OneFrame()), inputs):
            pass

    async with scripted(sound(b"\0\0" * 4800, ends=False), models=answer(404)) as server:
        stage, inputs = voice(server.url), Stream()
        task = asyncio.create_task(speak(stage, inputs))
        inputs.put(VoiceText(TEXT, 0))
        await until(lambda: bool(server.asked))
        task.cancel()
        await turns(later)
        task.cancel()
        await asyncio.wait([task])
        await turns(50)
        assert not [one for one in asyncio.all_tasks() if one.get_name().startswith("r:")]
        await stage.aclose()
