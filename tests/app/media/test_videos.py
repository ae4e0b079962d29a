"""Videos: the frames and the sound that a model takes, and what is refused before it costs anything."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from app.media import videos
from app.media.audio import MediaError
from app.media.videos import decode_video, video_of_url
from engine import CameraFeed
from tests.app.mp4 import with_its_index_first

FEED = CameraFeed(fps=2.0, side=64, most=8)


def video(
    seconds: float = 2.0, fps: int = 10, size: tuple[int, int] = (96, 64), sound: bool = True, kind: str = "mp4"
) -> bytes:
    """A video that gets brighter with every frame, with a tone, as somebody's telephone would send it."""
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as out:
        pictures: Any = out.add_stream("mpeg4" if kind == "mp4" else "libvpx", rate=fps)
        pictures.width, pictures.height, pictures.pix_fmt = *size, "yuv420p"
        tone: Any = out.add_stream("aac" if kind == "mp4" else "libopus", rate=48_000) if sound else None
        count = round(seconds * fps)
        for i in range(count):
            level = np.full((size[1], size[0], 3), 20 + 200 * i // count, np.uint8)
            out.mux(pictures.encode(av.VideoFrame.from_ndarray(level, format="rgb24")))
        out.mux(pictures.encode(None))
        if tone is not None:
            wave = (9000 * np.sin(np.arange(round(seconds * 48_000)) / 20)).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(wave[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, 0, Fraction(1, 48_000)
            out.mux(tone.encode(frame))
            out.mux(tone.encode(None))
    return file.getvalue()


def recording() -> bytes:
    """An MP4 file with sound alone."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        tone: Any = out.add_stream("aac", rate=48_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4800), np.int16), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, 0, Fraction(1, 48_000)
        out.mux([*tone.encode(frame), *tone.encode(None)])
    return file.getvalue()


def url(data: bytes, kind: str = "mp4") -> str:
    return f"data:video/{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("kind", ["mp4", "webm"])
def test_a_video_becomes_the_frames_that_a_model_takes_and_its_sound(kind: str) -> None:
    made = decode_video(video(kind=kind), 10, FEED)
    assert made.frames.shape == (4, 43, 64, 3)
    assert made.fps == 2.0
    levels = made.frames.mean((1, 2, 3))
    np.testing.assert_allclose(levels, [20, 70, 120, 170], atol=12)
    assert made.pcm is not None
    assert abs(len(made.pcm) / 16_000 - 2.0) < 0.1
    assert np.abs(made.pcm).max() > 5000


def test_half_of_a_video_whose_index_comes_first_is_not_taken_for_it(tmp_path: Path) -> None:
    """It can be decoded up to the cut."""
    whole = with_its_index_first(video(4.0, sound=False), "mp4", tmp_path)
    assert len(decode_video(whole, 10, FEED).frames) == 8
    with pytest.raises(MediaError, match=r"cut off: it contains .* s of 4\.0 s"):
        decode_video(whole[: len(whole) // 2], 10, FEED)


@pytest.mark.parametrize("seconds", [3, 5])
def test_a_video_of_one_frame_a_second_is_whole_to_the_end_of_its_last_frame(seconds: int, tmp_path: Path) -> None:
    whole = with_its_index_first(video(seconds, fps=1, sound=False), "mp4", tmp_path)
    assert len(decode_video(whole, 10, FEED).frames) == seconds
    cut = whole[: (whole.index(b"mdat") + len(whole)) // 2]
    with pytest.raises(MediaError, match=rf"cut off: it contains .* s of {seconds}\.0 s"):
        decode_video(cut, 10, FEED)


def test_a_long_video_has_rarer_frames_and_no_more_of_them() -> None:
    made = decode_video(video(8.0, fps=4, sound=False), 10, FEED)
    assert len(made.frames) == 8
    assert made.fps == 1.0
    assert made.pcm is None
    np.testing.assert_allclose(made.frames.mean((1, 2, 3)), 20 + 25 * np.arange(8), atol=12)


def test_one_frame_is_a_video() -> None:
    assert len(decode_video(video(0.1, sound=False), 10, FEED).frames) == 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: b"", "unknown video format"),
        (lambda: b"RIFF0000WAVEfmt ", "unknown video format"),
        (lambda: video()[:900], "damaged or cut off"),
        (lambda: video(kind="webm")[:60], "damaged or cut off"),
        (lambda: video(4.0, sound=False), "longer than 3 s"),
        (recording, "contains no video"),
        (lambda: video(0.2, size=(4000, 2400), sound=False), "4000x2400 pixels"),
    ],
    ids=["nothing", "a recording", "half", "a header's start", "too long", "no frames", "too large"],
)
@pytest.mark.fault("I5.1")
def test_a_video_that_is_refused(make: Callable[[], bytes], told: str) -> None:
    data = make()
    with pytest.raises(MediaError, match=told):
        decode_video(data, 3, FEED)


def test_a_webm_that_is_cut_shows_what_is_there() -> None:
    whole = video(2.0, kind="webm", sound=False)
    made = decode_video(whole[: len(whole) * 3 // 4], 10, FEED)
    assert 1 <= len(made.frames) < 4


@pytest.mark.fault("I5.1")
def test_frames_are_counted_while_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "MAX_PIXELS", 5 * 96 * 64)
    with pytest.raises(MediaError, match="too many pixels"):
        decode_video(video(sound=False), 10, FEED)


@pytest.mark.parametrize(
    "given", ["https://example.com/a.mp4", "data:image/png;base64,AAAA", "data:video/mp4,AAAA", url(b"")[:-1] + "é"]
)
def test_an_address_is_not_fetched(given: str) -> None:
    with pytest.raises(MediaError):
        video_of_url(given)


def test_a_data_uri_is_weighed_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert video_of_url(url(b"abc")) == b"abc"
    monkeypatch.setattr(videos, "MAX_VIDEO_BYTES", 30)
    with pytest.raises(MediaError, match="larger than"):
        video_of_url(url(b"a" * 60))
