"""Files for sound: each suffix its own format, and what cannot be written is known beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
import pytest

from app.commands import sink
from app.commands.sink import FORMATS, SinkError, check_file, check_output, open_sink
from engine import SPEAKER_RATE_HZ

TONE = (0.3 * np.sin(2 * np.pi * 300 * np.arange(SPEAKER_RATE_HZ) / SPEAKER_RATE_HZ)).astype(np.float32)
CODECS = {".wav": "pcm_s16le", ".mp3": "mp3float", ".flac": "flac", ".ogg": "opus", ".opus": "opus", ".aac": "aac"}


@pytest.mark.parametrize("suffix", [*FORMATS, ".MP3"])
async def test_a_file_holds_what_its_name_says(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"tone{suffix}"
    async with open_sink(str(path)) as file:
        for at in range(0, len(TONE), 1920):
            await file.write(TONE[at : at + 1920])
    with av.open(str(path)) as read:
        assert read.streams.audio[0].codec_context.name == CODECS[suffix.lower() or ".wav"]
        length_s = sum(frame.samples / frame.sample_rate for frame in read.decode(audio=0))
    assert length_s == pytest.approx(1.0, abs=0.13)  # what an MP3 or AAC encoder pads with


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
async def test_the_header_tells_the_length(suffix: str, tmp_path: Path) -> None:
    async with open_sink(str(tmp_path / f"tone{suffix}")) as file:
        await file.write(TONE)
    with av.open(str(tmp_path / f"tone{suffix}")) as read:
        assert read.streams.audio[0].duration == SPEAKER_RATE_HZ


def test_what_cannot_be_written_is_told_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "kept.wav").write_bytes(b"precious")
    check_output(str(tmp_path / "kept.wav"))
    assert (tmp_path / "kept.wav").read_bytes() == b"precious"
    for path, sentence in (
        (tmp_path / "no" / "x.wav", f"no such folder: {tmp_path / 'no'}"),
        (tmp_path, "it is a folder"),
        (tmp_path / "x.txt", r"must end with one of \.wav, \.mp3, \.flac, \.ogg, \.opus, \.aac"),
        (tmp_path / "x.wav.gz", "must end with"),
    ):
        with pytest.raises(SinkError, match=sentence):
            check_output(str(path))
    assert [path.name for path in tmp_path.iterdir()] == ["kept.wav"]
    check_output("-")
    check_output(None)


def test_the_file_of_a_machine_without_a_loudspeaker_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "device_available", lambda: "there is none")
    with pytest.raises(SinkError, match="no such folder"):
        check_output(None, otherwise="no/say.wav")


@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SinkError, match="you have no permission"):
        check_file(str(tmp_path / "x.wav"), (".wav",))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("suffix", ["wav", "mp3", "ogg"])
async def test_a_full_disk_is_one_sentence(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"full.{suffix}").symlink_to("/dev/full")
    with pytest.raises(SinkError, match="No space left on device"):
        await _fill(str(tmp_path / f"full.{suffix}"))


async def _fill(path: str) -> None:
    async with open_sink(path) as file:
        for _ in range(100):
            await file.write(TONE)
