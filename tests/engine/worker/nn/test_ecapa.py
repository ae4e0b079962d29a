"""The network that tells who speaks, held against transformers' own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniDiTConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import ECAPA_TimeDelayNet

from engine.worker.nn.ecapa import Ecapa
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader


@pytest.mark.parametrize("frames", [3, 60, 201])
@pytest.mark.parametrize("scale", [2, 4])
def test_embeddings_are_those_of_the_reference(tmp_path: Path, frames: int, scale: int) -> None:
    torch.manual_seed(scale)
    config = Qwen2_5OmniDiTConfig(
        mel_dim=20, enc_channels=[16, 16, 16, 32], enc_kernel_sizes=[5, 3, 3, 1], enc_dilations=[1, 2, 1, 1],
        enc_attention_channels=8, enc_res2net_scale=scale, enc_se_channels=8, enc_dim=12,
    )  # fmt: skip
    theirs = ECAPA_TimeDelayNet(config).eval().requires_grad_(False)
    save_file(
        {f"a.{name}": one.contiguous() for name, one in theirs.state_dict().items()}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text('{"architectures": ["Tiny"]}')
    read = WeightReader(SafetensorsCheckpoint(tmp_path, "Tiny"), "a.", torch.device("cpu"), torch.float32)
    mel = torch.randn(2, frames, 20)
    found = Ecapa(read, config)(mel.transpose(1, 2))
    assert found.shape == (2, 12)
    torch.testing.assert_close(found, theirs(mel), rtol=1e-5, atol=1e-6)
