"""Training code2wav on a few voices leaves the others, and what all share, as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from engine.training.nano.codec import path
from engine.training.nano.export import blank_codec
from engine.training.nano.train_code2wav import OWN, Training
from engine.worker.models.nano.voice import VOICES


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working folder of noise: of each voice two utterances to judge by, the others too short for that."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for voice in VOICES:
        (tmp_path / voice).mkdir()
        basis = torch.linalg.qr(torch.randn(328, 64))[0]
        replace(blank_codec(), basis=basis, books=torch.randn(8, 512, 64) / 8).save(path(tmp_path, voice))
    rows = [noise(voice, 47 if index < 2 else 26) for voice in range(len(VOICES)) for index in range(18)]
    torch.save(rows, tmp_path / "waves.pt")
    return tmp_path


def noise(voice: int, frames: int) -> dict[str, torch.Tensor | int]:
    return {
        "voice": voice,
        "codes": torch.randint(0, 512, (frames, 8), dtype=torch.int16),
        "wave": torch.randint(-3000, 3000, (frames * 640,), dtype=torch.int16),
        "mel": torch.randn(4 * frames, 80),
        "log_f0": torch.full((4 * frames,), 4.7),
        "voiced": torch.ones(4 * frames),
    }


def learned(work: Path, voices: list[int]) -> dict[str, set[int]]:
    """By parameter, the rows that a little training has changed; -1 stands for what has no rows."""
    training = Training(work, None)
    nn.init.normal_(training.net.correct.weight, std=0.01)  # from zero, the first step would reach nothing before it
    if voices:
        training.confine(voices)
    before = {name: value.clone() for name, value in training.net.state_dict().items()}
    training.run([0.0, 0.1, 0.2], 1e-2, -1.0)
    changed: dict[str, set[int]] = {}
    for name, value in training.net.state_dict().items():
        rows = range(len(VOICES)) if name.split(".")[0] in OWN else [-1]
        moved = {row for row in rows if not torch.equal(*((t if row < 0 else t[row]) for t in (value, before[name])))}
        changed |= {name: moved} if moved else {}
    return changed


def test_only_the_chosen_voices_learn(work: Path) -> None:
    changed = learned(work, [1, 2])
    assert {name.split(".")[0] for name in changed} == set(OWN)
    assert set.union(*changed.values()) == {1, 2}


def test_control_without_a_choice_everything_learns(work: Path) -> None:
    changed = learned(work, [])
    assert -1 in set.union(*changed.values())
    assert 0 in changed["correct.bias"]
