"""Simulates light and a camera: exposure, uneven light, white balance, blur, noise, JPEG.

Pictures are float32 [H, W, 3] in [0, 1] until the camera has taken them.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from engine.training.nano.backdrops import noise

Picture = NDArray[np.float32]
GAINS = {"light": (0.84, 1.15), "dim": (0.3, 0.42), "dark": (0.1, 0.17)}
"""Range of the light that reaches the picture."""


def taken(rng: Generator, scene: Picture, light: str, held_out: bool) -> NDArray[np.uint8]:
    """Return the picture of a scene in this light, uint8 [H, W, 3]."""
    lit = scene * _lamp(rng, scene.shape[0], scene.shape[1], held_out)[:, :, None] * rng.uniform(*GAINS[light])
    tint = 0.13 if held_out else 0.09
    lit = lit * (1 + rng.uniform(-tint, tint) * np.array([1, 0, -1], np.float32) + rng.uniform(-0.02, 0.02, 3))
    blurred = _blurred(rng, lit.astype(np.float32), held_out)
    grain = rng.uniform(0.002, 0.035) * (1.0 if light == "light" else 0.5 if light == "dim" else 0.25)
    shot = blurred + rng.standard_normal(scene.shape, np.float32) * np.float32(grain)
    pixels = (np.clip(shot, 0, 1) * 255 + 0.5).astype(np.uint8)
    return _squeezed(pixels, int(rng.integers(40, 96))) if rng.random() < 0.5 else pixels


def _lamp(rng: Generator, height: int, width: int, held_out: bool) -> Picture:
    """Return the light field: even or from one side in training; in tests a spot, or with a shadow."""
    if not held_out:
        return 1 - rng.uniform(0, 0.25) * noise(rng, height, width, 2)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    if rng.random() < 0.5:
        far = np.hypot(x / width - rng.uniform(0.3, 0.7), y / height - rng.uniform(0.3, 0.7))
        return (1 - rng.uniform(0.1, 0.35) * np.clip(far, 0, 1)).astype(np.float32)
    edge = (x - width * rng.uniform(0.2, 0.8)) * rng.choice([-1, 1]) + (y - height / 2) * rng.uniform(-1, 1)
    return (1 - rng.uniform(0.1, 0.28) / (1 + np.exp(-edge / rng.uniform(2, 12)))).astype(np.float32)


def _blurred(rng: Generator, picture: Picture, held_out: bool) -> Picture:
    if rng.random() < 0.4:
        return picture
    if held_out and rng.random() < 0.5:  # camera shake
        return np.mean([np.roll(picture, shift, axis=1) for shift in range(int(rng.integers(2, 5)))], axis=0)
    image = Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8))
    softer = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.4)))
    return np.asarray(softer, np.float32) / np.float32(255)


def _squeezed(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))
