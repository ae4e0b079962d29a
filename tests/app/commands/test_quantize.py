"""`parley quantize`, as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from app.cli import cli


def typed(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["quantize", *arguments])
    return result.exit_code, " ".join(result.output.split())


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Any"]}), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    tensors = {"model.layers.0.mlp.up_proj.weight": torch.ones(64, 128), "model.embed_tokens.weight": torch.ones(8, 64)}
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_checkpoint_is_quantized_into_a_new_folder(tmp_path: Path) -> None:
    code, said = typed(str(checkpoint(tmp_path / "full")), str(tmp_path / "few"), "--bits", "8", "--group", "64")
    assert code == 0
    assert "few: 1 layers of 8 bits, 0.00 GB before, 0.00 after" in said
    assert load_file(tmp_path / "few" / "model.safetensors")["model.layers.0.mlp.up_proj.weight_packed"].shape == (
        64,
        32,
    )
    assert (tmp_path / "few" / "tokenizer.json").exists()


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    full = checkpoint(tmp_path / "full")
    code, said = typed(str(full), str(full))
    assert (code, "already exists; name a new folder" in said) == (1, True)
    code, said = typed(str(tmp_path), str(tmp_path / "few"))
    assert (code, "config.json" in said) == (1, True)
    code, said = typed(str(full), str(tmp_path / "few"), "--group", "1000")
    assert (code, "nothing was quantized" in said) == (0, True)
