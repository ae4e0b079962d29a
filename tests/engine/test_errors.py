"""Clients are told what failed and what to do, but not where this deployment's other servers and files are."""

from __future__ import annotations

import pytest

from engine.errors import StageFailed, StageUnavailable

PLACES = {
    "The language model's server at 10.0.0.5:8000 cannot be reached. Is it running?": (
        "The language model's server cannot be reached. Is it running?"
    ),
    "The speech server at llm.internal refuses the key in /etc/parley/llm.key (401).": (
        "The speech server refuses the key in … (401)."
    ),
    "The server at http://box:8000/v1/ does not support the chat completions API. Check options.url.": (
        "The server does not support the chat completions API. Check options.url."
    ),
    "The server at [fe80::1%25eth0]:80 has no model 'qwen3:4b', or no API at https://llm.corp/v1/ (404).": (
        "The server has no model 'qwen3:4b', or no API (404)."
    ),
    "The server at a failed (500), and says: dial tcp 192.168.7.9:5432: refused": (
        "The server failed (500), and says: dial tcp …: refused"
    ),
    "The server at a failed (500), and says: no route to db.internal:5432, [::1]:80 or redis://cache/0": (
        "The server failed (500), and says: no route to …, … or …"
    ),
    "The model's file C:\\models\\x.gguf is damaged": "The model's file … is damaged",
}
HARMLESS = (
    "No slot for an HTTP answer became free within 60 s; try again later.",
    "The conversation exceeds the context of 'qwen3.5:4b'. Shorten it, and/or start again at 12:30.",
    "max_output_tokens must be at least 1 (got 0): see 1.2.3 at the end",
    "The replica thinker/0 is gone.",
)


@pytest.mark.parametrize("message", PLACES)
def test_addresses_and_paths_are_for_the_log_alone(message: str) -> None:
    error = StageUnavailable(message)
    assert error.public == PLACES[message]
    assert str(error) == message


@pytest.mark.parametrize("message", HARMLESS)
def test_other_messages_are_told_as_they_are(message: str) -> None:
    assert StageFailed(message).public == message


def test_a_long_message_is_searched_in_no_time() -> None:
    assert len(StageFailed("a." * 50_000 + "/" * 50_000).public) == 150_000
