"""What the family refuses, in one sentence each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from engine.errors import ConfigError, RequestError, WeightsError
from engine.worker.stage_request import StageRequest
from tests.engine.worker.models.qwen3_tts.driven import Frames, asked, say, stages, whole
from tests.oracles.qwen3_tts import BASE, BIG, DESIGN, SMALL, TEXT, write_recording
from tests.oracles.tiny_qwen3_tts import Sizes

Folder = Callable[[Sizes], Path]
CLONE = {"name": "anna", "reference": "anna.wav", "consent": "A test's own sound."}


@pytest.mark.parametrize(
    ("sizes", "options", "told"),
    [
        (BIG, {"voice": "viviane"}, r"options\.voice: there is no voice 'viviane' \(did you mean 'vivian'"),
        (BIG, {"language": "ja"}, r"options\.language: .* speaks zh, en, de, not ja"),
        (BIG, {"clones": [CLONE]}, r"options\.clones: this checkpoint is of the kind custom_voice"),
        (SMALL, {"instruct": "sad"}, r"options\.instruct: only CustomVoice checkpoints of 1\.7B"),
        (DESIGN, {}, r"options\.designs: this checkpoint is of the kind voice_design; define at least one voice"),
        (DESIGN, {"designs": [{"name": "a", "instruct": " "}]}, r"options\.designs\[0\]\.instruct: describe the voice"),
        (DESIGN, {"designs": [{"name": "", "instruct": "b"}]}, r"options\.designs\[0\]\.name: '' is empty"),
        (BASE, {}, r"options\.clones: this checkpoint is of the kind base; define at least one voice"),
        (BASE, {"clones": [{**CLONE, "consent": ""}]}, r"options\.clones\[0\]\.consent: describe in a sentence"),
        (BASE, {"clones": [{**CLONE, "reference": "http://a/b.wav"}]}, "is a URL; name a local"),
        (BIG, {"layout": "both"}, r"options\.layout: 'both' is not one of streaming, whole"),
        (BIG, {"graphs": "yes"}, r"options\.graphs: 'yes' is not one of auto, on, off"),
        (BIG, {"context": 3}, "options: context must be at least 256"),
    ],
)
def test_options_that_do_not_fit_the_checkpoint(
    checkpoint: Folder, sizes: Sizes, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        stages(checkpoint(sizes), **options)


def test_a_codec_of_25_hz_is_refused(checkpoint: Folder, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint(SMALL), tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tokenizer_type": "qwen3_tts_tokenizer_25hz"}))
    with pytest.raises(WeightsError, match="the codec qwen3_tts_tokenizer_25hz is not supported"):
        stages(folder)


def test_an_unknown_speaker_is_one_error(checkpoint: Folder) -> None:
    (talker, _) = stages(checkpoint(SMALL))
    with pytest.raises(RequestError, match=r"There is no voice 'nobody'"):
        talker.open(StageRequest(asked(voice="nobody"), 0, Frames()))


async def test_a_whole_text_without_room_is_one_error(checkpoint: Folder) -> None:
    line = stages(checkpoint(SMALL), layout="whole", context=256)
    (bad, good) = await say(line, (asked("a"), whole(TEXT * 30)), (asked("b", 4), whole("Well.")))
    assert "only room for" in bad.error
    assert len(good.codes) == 4


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("text", ["नमस्ते दुनिया, आप कैसे हैं?", "مرحبا بالعالم", "Привет, мир! How are you?"])
async def test_a_text_in_a_language_that_the_voice_has_not_is_said_as_well_as_it_can(
    checkpoint: Folder, text: str, layout: str
) -> None:
    """The checkpoint speaks Chinese, English and German. Nobody can tell what it makes of others: it ends, and no other
    answer changes."""
    line = stages(checkpoint(SMALL), layout=layout)
    (foreign, well) = await say(line, (asked("a", 6), whole(text)), (asked("b", 6), whole("Well.")))
    (alone,) = await say(line, (asked("b", 6), whole("Well.")))
    assert (foreign.error, well.error) == ("", "")
    assert 0 < len(foreign.codes) <= 6
    assert len(foreign.wave) == 1920 * len(foreign.codes)
    assert well.codes.tolist() == alone.codes.tolist()


RATE_HZ = 24_000


@pytest.mark.parametrize(
    ("seconds", "level", "told"),
    [
        (12, 0.0, "is silent; record the speaker louder"),
        (600, 0.1, r"is 600\.0 s long; cut it to 3 to 30 s"),
        (4, np.nan, "has samples that are not finite numbers"),
    ],
)
def test_recordings_of_which_no_voice_can_be_made(
    checkpoint: Folder, tmp_path: Path, seconds: int, level: float, told: str
) -> None:
    wave = np.full(seconds * RATE_HZ, level, np.float32)
    soundfile.write(tmp_path / "anna.wav", wave, RATE_HZ, subtype="FLOAT")
    with pytest.raises(ConfigError, match=told):
        stages(checkpoint(BASE), clones=[{**CLONE, "reference": str(tmp_path / "anna.wav"), "text": "Hello."}])


def test_a_recording_that_leaves_no_room_for_an_answer(checkpoint: Folder, tmp_path: Path) -> None:
    write_recording(tmp_path / "anna.wav", 20)
    clone = {**CLONE, "reference": str(tmp_path / "anna.wav"), "text": "Hello."}
    with pytest.raises(ConfigError, match=r"'anna' takes \d+ of the 256 rows of options\.context\. Raise it"):
        stages(checkpoint(BASE), context=256, clones=[clone])


@pytest.mark.parametrize("rate_hz", [8_000, 44_100])
async def test_telephone_and_music_are_cloned_like_anything_else(
    checkpoint: Folder, tmp_path: Path, rate_hz: int
) -> None:
    path = write_recording(tmp_path / "anna.wav", 3.5, rate_hz)
    if rate_hz > RATE_HZ:
        times = np.arange(4 * rate_hz) / rate_hz
        music = np.sin(2 * np.pi * np.outer((220, 277, 330), times)).sum(0) / 4
        soundfile.write(path, music, rate_hz)
    line = stages(checkpoint(BASE), clones=[{**CLONE, "reference": str(path), "text": "Hello."}])
    (said,) = await say(line, (asked(frames=4, voice="anna"), whole("Hello there.")))
    assert len(said.wave) == 4 * 1920
    frames = getattr(line[0], "_voices")["anna"].frames  # noqa: B009
    assert len(frames) == (50 if rate_hz > RATE_HZ else 44), "12.5 for each second of the recording, whatever its rate"
