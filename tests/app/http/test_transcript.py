"""A transcript in the API's formats, and where its voice is in the recording."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from app.http.transcript import SpeechSpan, TranscriptionResult, span_of
from engine import Word
from tests.app.rig import LoudnessVad

HEARD = TranscriptionResult("Hello there.", 3725.5, "en", SpeechSpan(3723.0045, 3725.2, 0.1))


def test_subtitles() -> None:
    assert HEARD.written("srt") == "1\n01:02:03,004 --> 01:02:05,200\nHello there.\n"
    assert HEARD.written("vtt") == "WEBVTT\n\n01:02:03.004 --> 01:02:05.200\nHello there.\n"
    assert HEARD.written("text") == "Hello there.\n"


def test_words_can_fake_no_subtitle() -> None:
    odd = dataclasses.replace(HEARD, text="a\n\n2\n00:00 --> 00:01\nb")
    assert odd.written("srt").splitlines()[2:] == ["a 2 00:00 -> 00:01 b"]


def test_silence_has_no_subtitle_and_no_segment() -> None:
    silent = dataclasses.replace(HEARD, text="")
    assert (silent.written("srt"), silent.written("vtt"), silent.written("text")) == ("", "WEBVTT\n", "\n")
    assert silent.body("verbose_json")["segments"] == []


WORDS = (
    Word("Hello", 0.5, 0.75, -0.1), Word("there.", 0.8, 1.2, -0.3), Word("It", 1.3, 1.4, -0.2),
    Word("is", 1.5, 1.6, -0.2), Word("fine", 4.0, 4.25, -0.6),
)  # fmt: skip
TIMED = TranscriptionResult("Hello there. It is fine", 5.0, "en", SpeechSpan(0.4, 4.3, 0.1), WORDS)


def test_words_that_tell_their_times_are_told_and_segments_are_sentences() -> None:
    body = TIMED.body("verbose_json", ("word", "segment"))
    assert body["words"][0] == {"word": "Hello", "start": 0.5, "end": 0.75}
    assert [word["word"] for word in body["words"]] == ["Hello", "there.", "It", "is", "fine"]
    assert [(one["id"], one["start"], one["end"], one["text"], one["avg_logprob"]) for one in body["segments"]] == [
        (0, 0.5, 1.2, "Hello there.", -0.2), (1, 1.3, 1.6, "It is", -0.2), (2, 4.0, 4.25, "fine", -0.6),
    ]  # fmt: skip
    assert "segments" not in TIMED.body("verbose_json", ("word",))
    assert "words" not in TIMED.body("verbose_json")
    assert TIMED.body("json", ("word",)).keys() == {"text", "usage"}


def test_subtitles_are_sentences_where_words_tell_their_times() -> None:
    assert TIMED.written("srt") == (
        "1\n00:00:00,500 --> 00:00:01,200\nHello there.\n\n"
        "2\n00:00:01,300 --> 00:00:01,600\nIt is\n\n"
        "3\n00:00:04,000 --> 00:00:04,250\nfine\n"
    )
    assert TIMED.written("vtt").startswith("WEBVTT\n\n00:00:00.500 --> 00:00:01.200\nHello there.\n\n00:00:01.300")


def test_verbose_json_has_one_segment_and_no_words_where_ears_tell_no_times() -> None:
    body = HEARD.body("verbose_json")
    assert (body["task"], body["language"], body["duration"], body["text"]) == (
        "transcribe",
        "en",
        3725.5,
        "Hello there.",
    )
    (segment,) = body["segments"]
    assert (segment["start"], segment["end"], segment["text"]) == (3723.005, 3725.2, "Hello there.")
    assert segment["tokens"] == []
    assert "words" not in body


@pytest.mark.parametrize(("ahead_s", "behind_s"), [(0, 0), (1, 0), (0, 2), (3, 1)])
def test_the_span_is_that_of_the_voice(ahead_s: int, behind_s: int) -> None:
    voice = np.tile(np.array([9000, -9000], np.int16), 8_000)
    pcm = np.concatenate([np.zeros(16_000 * ahead_s, np.int16), voice, np.zeros(16_000 * behind_s, np.int16)])
    span = span_of(pcm, LoudnessVad())
    assert span.start_s == pytest.approx(ahead_s, abs=0.032)
    assert span.end_s == pytest.approx(ahead_s + 1, abs=0.032)
    assert span.doubt == 0


def test_where_no_voice_is_found_the_span_is_the_recording() -> None:
    assert span_of(np.zeros(16_000, np.int16), LoudnessVad()) == SpeechSpan(0.0, 1.0, 1.0)
    assert span_of(np.zeros(10, np.int16), LoudnessVad()).end_s == 10 / 16_000
