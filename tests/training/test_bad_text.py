"""What nano says of text that was never meant to be spoken: something sensible, with an end, at an ordinary level."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import resample_poly

from engine.chunk import Text
from engine.core import Request
from engine.training.nano import manner, meter
from engine.training.nano.speak import Steady, Voice, drive
from engine.worker.stage_request import StageRequest

STRANGE = {
    "cyrillic": "Привет, как дела?",
    "chinese": "你好世界",
    "arabic": "مرحبا بالعالم",
    "mixed": "The word λόγος means word.",
    "emoji between words": "Great 👍🏽 job 🎉🎉!",
    "address": "See https://user@www.example.org:8080/a/very_long-path?query=1&x=%20#top now.",
    "code": "for (int i = 0; i < n; i++) { a[i] += b[i] * 2; } // done",
    "json": '{"a": [1, 2, {"b": null}], "c": "x\\ny"}',
    "capitals": "WHY ARE YOU SHOUTING AT ME? I CAN HEAR YOU VERY WELL.",
    "no vowels": "Brr, pst, hmm, xkcd, strngth, zzz.",
    "thirty digits": "123456789012345678901234567890",
    "one letter often": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "names": "Szczebrzeszyn, Llanfairpwllgwyngyll, Xhosa, Nguyễn, Þórður.",
    "signs": "§ ± ≠ ∞ ∑ √ € £ ¥ © ® ™ … ¿ ¡",
    "controls": "Hello\x00\x07\u200b\u202ethere\ufeff.",
    "pauses": "Well... ... ,,, ;;; ??? !!! no.",
}


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice()


def sensible(text: str, wave: NDArray[np.float32]) -> None:
    """Sound for what is said, neither silence for long nor a screech."""
    letters = meter.spoken(text)
    assert len(wave) / manner.RATE_HZ < 1 + 0.3 * len(letters), "it does not come to an end"
    assert np.isfinite(wave).all()
    assert np.abs(wave).max() < 1
    assert -45 < manner.loudness_db(wave) < -8
    assert manner.pause_ms(wave) < 1500


@pytest.mark.parametrize("name", STRANGE)
def test_strange_text_is_said_somehow_and_ends(voice: Voice, name: str) -> None:
    sensible(STRANGE[name], resample_poly(voice.say(STRANGE[name]), 2, 3).astype(np.float32))


def test_control_silence_and_noise_are_not_sensible(voice: Voice) -> None:
    rng = np.random.default_rng(0)
    said = resample_poly(voice.say("Hello there."), 2, 3).astype(np.float32)
    sensible("Hello there.", said)
    stopped = np.concatenate([said, np.zeros(2 * manner.RATE_HZ, np.float32), said])
    for wave in (np.zeros(8000), rng.uniform(-0.9, 0.9, 8000), np.tile(said, 9), stopped):
        with pytest.raises(AssertionError):
            sensible("Hello there.", wave.astype(np.float32))


@pytest.mark.parametrize("text", ["word " * 2000, "x" * 10_000, "7" * 10_000, "Ж" * 10_000, "🎉" * 10_000])
def test_ten_thousand_characters_are_begun_at_once_and_kept_within_bounds(voice: Voice, text: str) -> None:
    async def frames() -> int:
        req = StageRequest(Request(id="r", session="s", messages=(), max_audio_s=2.0), 0, Steady(5))
        return len([chunk async for chunk in drive(voice.talker, req, [Text(text, 0)])])

    said = asyncio.run(frames())
    assert said == (0 if "🎉" in text else 50) or (said > 0 and "Ж" in text)
