"""The README's moving picture: small, short, and of a conversation; equal pictures are one that stays longer."""

from __future__ import annotations

import io

from PIL import Image

from scripts.picture import FILE, LAST_MS, merged

MOST_BYTES = 700_000
MOST_MS = 15_000


def test_the_picture_is_small_and_short_and_moves() -> None:
    assert FILE.stat().st_size <= MOST_BYTES
    with Image.open(FILE) as film:
        durations: list[int] = []
        for number in range(getattr(film, "n_frames", 1)):
            film.seek(number)
            film.load()
            durations.append(film.info["duration"])
    assert len(durations) > 50
    assert sum(durations) <= MOST_MS


def png(grey: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (2, 2), (grey, grey, grey)).save(file, "png")
    return file.getvalue()


def test_equal_pictures_are_one_that_stays_longer() -> None:
    film = merged([(png(0), 0.0), (png(0), 0.1), (png(255), 0.3), (png(0), 0.4)])
    assert [(image.getpixel((0, 0))[0], ms) for image, ms in film] == [(0, 300), (255, 100), (0, LAST_MS)]  # pyright: ignore[reportOptionalSubscript, reportIndexIssue]
