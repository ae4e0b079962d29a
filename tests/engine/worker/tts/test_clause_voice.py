"""A voice of the user's own: what its library returns is checked before it becomes sound."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.core import StageInfo, Voice
from engine.errors import ConfigError, StageFailed
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import ClauseSpeaker, Piece, Saying
from engine.worker.tts.voices import voice_info
from tests.engine.fakes import working
from tests.engine.worker.stages.tts.saying import said, whole


class Own(ClauseSpeaker):
    """Speaks pieces of any kind."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return voice_info(config, [Voice("one", "One", "en")], "", ("en",))

    def __init__(self, *pieces: Any) -> None:
        self.info = msgspec.structs.replace(self.describe(StageConfig()), name="voice")
        self._pieces = pieces

    def pieces(self, saying: Saying) -> Iterator[Piece]:
        return self._pieces  # pyright: ignore[reportReturnType] -- a user may return a list instead of an iterator


class Noisy(Own):
    def __init__(self, config: StageConfig) -> None:
        super().__init__((np.zeros(8, np.int16), None))


TONE = np.full(2400, 0.1, np.float32)


@pytest.mark.parametrize(
    ("piece", "fault"),
    [
        (((TONE * 32767).astype(np.int16), None), "wave must be float32 samples, not int16; convert with pcm.astype"),
        ((TONE * 32767, None), "wave must be between -1 and 1, not up to 3277; divide 16-bit samples by 32768"),
        ((TONE.astype(np.float64), None), "wave must be float32 samples, not float64; convert with wave.astype"),
        ((TONE[None], None), "wave must have the shape [samples], not [1, 2400]; reshape the array"),
        ((TONE * np.nan, None), "wave contains NaN or infinite values"),
        ((TONE.tobytes(), None), "wave must be a NumPy array of float32 samples, not a bytes"),
        ((TONE, 24_000), "share must be None, or 0 to 1 (got 24000)"),
        (TONE, "(wave, share), not a ndarray"),
    ],
)
def test_audio_that_would_be_noise_is_refused(piece: Any, fault: str) -> None:
    with pytest.raises(StageFailed, match=f"pieces must yield pairs.*{re.escape(fault)}"):
        Own(piece).warm_up()


def test_a_server_with_such_a_voice_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "noisy.py"
    file.write_text("from tests.engine.worker.tts.test_clause_voice import Noisy as STAGE")
    with pytest.raises(ConfigError, match=r"stages\[2\]: .*noisy.py failed while it warmed up: .*not int16"):
        make(str(file), "v", 2, StageConfig())


async def test_a_list_of_pieces_is_spoken_once() -> None:
    async with working(Own((TONE, 0.5), (TONE, 1.0))) as desk:
        sound = whole(await said(desk, "a", "Hello. "))
    assert len(sound) == 2 * len(TONE)
