"""Tables of a container are bounded before FFmpeg reads them; ordinary files stay as they are."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.media import opening
from app.media.audio import MediaError, decode_audio
from app.media.images import image_of
from app.media.mp4_tables import MOST_SAMPLES, checked_mp4
from app.media.videos import decode_video
from app.media.webm_elements import checked_webm
from engine import CameraFeed
from tests.app.media.boxes import box, element, fragment, full_box, mp4, table, track
from tests.app.media.remuxed import remuxed
from tests.app.media.test_audio import recorded
from tests.app.media.test_videos import video

HUGE = 50_000_000
HOSTILE = {
    "samples of one size": mp4(track(HUGE)),
    "many tracks": mp4(*[track(MOST_SAMPLES // 20)] * 21),
    "edits that repeat a track": mp4(track(10_000, edits=100)),
    "samples of a fragment": mp4(rest=fragment(HUGE)),
    "fragments that add up": mp4(rest=fragment(MOST_SAMPLES // 10) * 11),
    "a second table": mp4(track(10, more=full_box(b"stsz", (100).to_bytes(4, "big"), HUGE.to_bytes(4, "big")))),
    "half a byte for each sample": mp4(track(10, more=full_box(b"stz2", b"\0\0\0\4", HUGE.to_bytes(4, "big")))),
    "chunks of uncompressed sound": mp4(track(1000, duration=1, in_chunk=2**32 - 1)),
    "tables in a codec's description": mp4(track(10, more=full_box(b"stsd", b"\0\0\0\1", table(b"stts", (HUGE, 1))))),
    "a table larger than its box": mp4(track(10, more=full_box(b"ctts", HUGE.to_bytes(4, "big")))),
    "boxes without end": mp4(rest=box(b"free") * 300_000),
    "tracks": mp4(*[track(1)] * 40),
    "a track whose number is negative where it is signed": mp4(track(10, id=1 << 31)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_ffmpeg_never_opens_an_mp4_with_such_tables(name: str) -> None:
    with patch.object(opening.av, "open", side_effect=AssertionError("it was opened")):
        with pytest.raises(MediaError):
            decode_audio(HOSTILE[name], 300.0)
        with pytest.raises(MediaError):
            decode_video(HOSTILE[name], 300.0, CameraFeed())


def test_tables_that_decoding_does_not_need_are_blanked() -> None:
    index = full_box(b"sidx", bytes(20) + bytes(12) * 1000)
    meta = box(b"udta", box(b"meta", full_box(b"keys", HUGE.to_bytes(4, "big"))))
    hidden = box(b"free", box(b"moov", box(b"mvhd", track(HUGE))))
    file = mp4(track(10, more=meta), rest=index + hidden)
    checked = checked_mp4(file)
    assert len(checked) == len(file)
    for name in (b"sidx", b"udta", b"meta", b"keys", b"free"):
        assert name not in checked
    assert checked.count(b"moov") == 1


def test_five_minutes_of_uncompressed_sound_are_not_too_much() -> None:
    """FFmpeg indexes it in groups, so that each of its samples may be in the tables."""
    checked_mp4(mp4(track(300 * 48_000, duration=1, in_chunk=12_000)))


LARGE = 4_000_000
TAGGED = {
    "an MP4 with free space": mp4(track(1), rest=box(b"free", bytes(LARGE))),
    "a WebM with tags": element("1A45DFA3") + element("18538067", element("1254C367", bytes(LARGE))),
    "a tag before an unknown format": b"ID3\4\0\0" + bytes([0, 127, 0, 0]) + bytes(LARGE),
    "zeros before an MP4": bytes(LARGE) + mp4(track(1)),
    "a WAV of one format": b"RIFF\0\0\0\0WAVEfmt " + LARGE.to_bytes(4, "little") + bytes(LARGE),
}


@pytest.mark.parametrize("name", TAGGED)
def test_a_large_file_is_checked_without_a_copy_of_it(name: str) -> None:
    file = bytearray(TAGGED[name])
    tracemalloc.start()
    try:
        with suppress(MediaError):
            decode_audio(file, 10.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LARGE // 4


@pytest.mark.parametrize("container", ["mp4", "mov", "matroska"])
def test_an_ordinary_file_keeps_its_frames(container: str) -> None:
    """Also in fragments, as browsers record."""
    options = {} if container == "matroska" else {"movflags": "frag_keyframe+empty_moov"}
    written = remuxed(video(2.0), container, options)
    with patch.dict(opening._CHECKS, clear=True):
        unchecked = decode_video(written, 10.0, CameraFeed(fps=4.0))
    checked = decode_video(written, 10.0, CameraFeed(fps=4.0))
    np.testing.assert_array_equal(checked.frames, unchecked.frames)
    np.testing.assert_array_equal(checked.pcm, unchecked.pcm)


def test_elements_that_decoding_does_not_need_are_padding() -> None:
    written = remuxed(recorded("webm", "libopus", 1.0), "webm", {"live": "1"})  # a Segment of unknown length
    heard = decode_audio(written, 10.0)
    at = written.index(bytes.fromhex("1F43B675"))
    tags = element("1254C367", element("7373", size=0) * 1000)
    changed = written[:at] + tags + written[at:]
    checked = checked_webm(changed)
    assert bytes.fromhex("1254C367") not in checked
    np.testing.assert_array_equal(decode_audio(checked, 10.0), heard)


def test_a_webm_of_millions_of_elements_is_refused() -> None:
    with pytest.raises(MediaError, match="elements"):
        checked_webm(element("18538067", element("1F43B675", b"\xe7\x80" * 400_000)))
    with pytest.raises(MediaError, match="track descriptions"):
        checked_webm(element("18538067", element("1654AE6B", bytes(300_000))))


@given(st.lists(st.sampled_from(["1F43B675", "A3", "E7", "1254C367", "EC", "A0"]), max_size=6), st.binary(max_size=40))
def test_a_webm_never_gets_longer(kinds: list[str], noise: bytes) -> None:
    written = element("1A45DFA3") + element("18538067", *[element(kind, noise[:7]) for kind in kinds], noise)
    checked = checked_webm(written)
    assert len(checked) <= len(written)
    assert checked_webm(checked) == checked


@given(st.binary(max_size=200), st.integers(0, 600))
def test_a_damaged_mp4_is_checked_without_another_error(noise: bytes, at: int) -> None:
    file = mp4(track(10, edits=1), rest=fragment(3))
    damaged = file[:at] + noise + file[at + len(noise) :]
    try:
        checked = checked_mp4(damaged)
    except MediaError:
        return
    assert len(checked) == len(damaged)
    checked_mp4(checked)


@pytest.mark.parametrize(
    "segment", [b"\xff\xda\0\2", b"\xff\xc4\0\2", b"\xff\xd8", b"\xff\xdb\0\2", b"\xff\xdd\0\4\0\1"]
)
def test_a_jpeg_of_thousands_of_segments_is_refused(segment: bytes) -> None:
    """33 000 scans were 21 seconds of decoding."""
    frame = b"\xff\xc2\0\x0b\x08\0\x08\0\x08\1\1\x11\0"
    with pytest.raises(MediaError, match="scans or tables"):
        image_of(b"\xff\xd8" + frame + segment * 33_000).decode()


def test_boxes_end_with_their_parent() -> None:
    """FFmpeg reads them so, too; otherwise a table could hide in the part that only one of both reads."""
    inner = box(b"mdia") + box(b"edts")
    long = (len(inner) + 5000).to_bytes(4, "big") + b"trak" + inner
    file = mp4(long, rest=fragment(HUGE))
    with pytest.raises(MediaError, match="samples"):
        checked_mp4(file)
