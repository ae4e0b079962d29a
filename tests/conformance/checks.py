"""What a client's user must have got in each scenario; the same for every client. Raises AssertionError."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from app.media.audio import decode_audio
from engine import MIC_RATE_HZ
from tests.conformance.part import LONG, PHRASE, WORDS, Report

WORD_S = 0.24
"""The scripted family speaks a word for six codec frames of 40 ms."""

LOST_S = 0.2
"""Sound that is lost, or too much: a call's jitter buffer blurs the ends, but a word would be missed."""

SPREAD_S = 0.7
"""How much longer than its speech a turn may be: 300 ms before it, up to 500 ms of silence, less what was quiet."""


def check(scenario: str, report: Report, speech_s: float) -> None:
    assert not report.errors
    (CHECKS | LIVE | OVER_HTTP | OVER_MCP | OVER_RESPONSES)[scenario](report, speech_s)


def _text(report: Report, speech_s: float) -> None:
    phrase = PHRASE.removeprefix("say: ")
    assert report.transcript == phrase
    assert abs(report.audio_s - WORD_S * len(phrase.split())) < LOST_S


def _voice(report: Report, speech_s: float) -> None:
    _answers_the_turn(report, speech_s)
    assert report.heard == _seconds(report.transcript)[0]


def _tool(report: Report, speech_s: float) -> None:
    assert report.call["name"] == "get_weather"
    assert report.call["arguments"] == '{"city": "Oslo"}'
    assert report.transcript.replace('"', "") == "The tool says: sunny in Oslo"  # some clients send results as JSON
    assert report.audio_s > WORD_S * 5


def _barge_in(report: Report, speech_s: float) -> None:
    assert report.interrupted
    assert 0.5 < report.interrupted_audio_s < WORD_S * int(LONG.split()[1]) / 4
    _answers_the_turn(report, speech_s)


def _truncate(report: Report, speech_s: float) -> None:
    assert report.cut_ms is not None
    assert report.transcript.startswith("I said: ")
    words = re.findall(r"word\d+", report.transcript)
    assert words == [f"word{i}" for i in range(len(words))]
    assert abs(len(words) - report.cut_ms / 1000 / WORD_S) <= 1.0
    assert words


def _answers_the_turn(report: Report, speech_s: float) -> None:
    _, heard_s = _seconds(report.transcript)
    assert speech_s - SPREAD_S < heard_s < speech_s + SPREAD_S
    assert abs(report.audio_s - WORD_S * 4) < LOST_S


def _seconds(transcript: str) -> tuple[str, float]:
    found = re.fullmatch(r"I heard (([\d.]+) seconds)\.", transcript)
    assert found, transcript
    return found[1], float(found[2])


def _chat(report: Report, speech_s: float) -> None:
    assert report.transcript == WORDS


def _speech(report: Report, speech_s: float) -> None:
    """An encoder pads what it makes."""
    pcm = decode_audio(base64.b64decode(report.sound), 60.0)
    assert abs(len(pcm) / MIC_RATE_HZ - WORD_S * len(WORDS.split())) < LOST_S
    assert abs(pcm).max() > 1000


def _transcription(report: Report, speech_s: float) -> None:
    found = re.fullmatch(r"([\d.]+) seconds", report.heard)
    assert found, report.heard
    assert speech_s - 0.1 < float(found[1]) < speech_s + SPREAD_S  # a client may leave some silence around it


def _response(report: Report, speech_s: float) -> None:
    assert report.transcript == WORDS


def _response_tool(report: Report, speech_s: float) -> None:
    assert report.call == {"name": "get_weather", "arguments": {"city": "Oslo"}}
    assert report.transcript == "The tool says: sunny in Oslo"


def _response_next(report: Report, speech_s: float) -> None:
    assert report.transcript == f"I said: {WORDS}"


def _mcp(report: Report, speech_s: float) -> None:
    assert report.call == {"name": "forecast", "arguments": '{"city": "Oslo"}'}
    assert report.transcript == "The tool says: sunny in Oslo"


OVER_MCP: dict[str, Callable[[Report, float], None]] = {"mcp": _mcp, "mcp_approved": _mcp}
"""With tools of an MCP server, which the server calls."""

OVER_RESPONSES: dict[str, Callable[[Report, float], None]] = {
    "response": _response,
    "response_tool": _response_tool,
    "response_next": _response_next,
}

OVER_HTTP: dict[str, Callable[[Report, float], None]] = {
    "chat": _chat,
    "speech": _speech,
    "transcription": _transcription,
}

LIVE: dict[str, Callable[[Report, float], None]] = {
    "live_text": _text,
    "live_voice": _voice,
    "live_tool": _tool,
    "live_barge_in": _barge_in,
}
"""Over Live, whose clients get a stream: seconds are of what can be heard in it."""

CHECKS: dict[str, Callable[[Report, float], None]] = {
    "text": _text,
    "voice": _voice,
    "tool": _tool,
    "barge_in": _barge_in,
    "truncate": _truncate,
}
