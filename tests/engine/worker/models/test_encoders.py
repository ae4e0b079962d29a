"""The encoders of sound and of pictures, held against transformers' own with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2_5OmniConfig, Qwen3OmniMoeConfig
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as qwen2_5
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen3

from engine.errors import WeightsError
from engine.worker.models.qwen2_5_omni import encoders as ours2_5
from engine.worker.models.qwen2_5_omni.source import Qwen2_5OmniSource as Source2_5
from engine.worker.models.qwen3_omni import encoders as ours3
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource as Source3
from engine.worker.nn.encoder import activation
from engine.worker.stage import StageConfig
from tests.oracles import tiny_qwen2_5_omni, tiny_qwen3_omni

Made = tuple[Any, Any, torch.dtype]
"""The reference's network, ours, and how exact both are."""
FAMILIES: dict[str, Any] = {
    "qwen3_omni": (
        tiny_qwen3_omni, Qwen3OmniMoeConfig, Source3, (ours3.Qwen3OmniAudioEncoder, ours3.Qwen3OmniVisionEncoder),
        (qwen3.Qwen3OmniMoeAudioEncoder, qwen3.Qwen3OmniMoeVisionEncoder),
    ),
    "qwen2_5_omni": (
        tiny_qwen2_5_omni, Qwen2_5OmniConfig, Source2_5,
        (ours2_5.Qwen2_5OmniAudioEncoder, ours2_5.Qwen2_5OmniVisionEncoder),
        (qwen2_5.Qwen2_5OmniAudioEncoder, qwen2_5.Qwen2_5OmniVisionEncoder),
    ),
}  # fmt: skip
CLOSE = {"float32": 1e-5, "bfloat16": 0.05}
"""How far values may lie apart, in their deviations; bfloat16 has steps of 1/128, and both round at every layer."""


@pytest.fixture(scope="module", params=[*FAMILIES])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return request.param, FAMILIES[request.param][0].make(tmp_path_factory.mktemp(request.param))


@pytest.fixture(params=["float32", "bfloat16"])
def made(request: pytest.FixtureRequest, folder: tuple[str, Path]) -> Callable[[str], Made]:
    """Both networks, "audio" or "vision"."""
    family, where = folder
    _, config_class, source_class, ours, kinds = FAMILIES[family]

    def make(what: str) -> Made:
        source = source_class(StageConfig(where, dtype=request.param))
        prefix = {"audio": "audio_tower", "vision": "visual"}[what]
        read, name = source.reader("thinker.").below(prefix), f"{what}_config"
        config = getattr(config_class.from_pretrained(where).thinker_config, name)
        theirs = kinds[what == "vision"]._from_config(config, dtype=source.dtype).eval().requires_grad_(False)
        theirs.load_state_dict({key: read(key, *value.shape) for key, value in theirs.state_dict().items()})
        return theirs, ours[what == "vision"](read, getattr(source.config.thinker_config, name)), source.dtype

    return make


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    close = CLOSE[str(found.dtype).removeprefix("torch.")]
    size = expected.float().std()
    assert 0.01 < size < 10
    torch.testing.assert_close(found.float() / size, expected.float() / size, rtol=0, atol=close)


@pytest.mark.parametrize(
    "lengths",
    [[20], [200], [100, 100], [73, 801, 1000], [1601, 8, 99], [400, 2, 30], [73 + 131 * i % 801 for i in range(21)]],
    ids=lambda one: "-".join(map(str, one[:5])),
)
def test_sounds_are_encoded_as_the_reference_does(made: Callable[[str], Made], lengths: list[int]) -> None:
    theirs, ours, dtype = made("audio")
    mel = torch.randn(128, sum(lengths), generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = theirs(mel, feature_lens=torch.tensor(lengths)).last_hidden_state
    found = ours(mel, lengths)
    assert found.dtype == dtype
    check(found, expected)
    if hasattr(ours, "filled"):
        ours.filled = True  # as on a GPU
        check(ours(mel, lengths), expected)


@pytest.mark.parametrize(
    "grids", [[(2, 2)], [(4, 6), (8, 8)], [(18, 10), (2, 34), (16, 16)]], ids=["cell", "two", "three"]
)
def test_pictures_are_encoded_as_the_reference_does(made: Callable[[str], Made], grids: list[tuple[int, int]]) -> None:
    theirs, ours, dtype = made("vision")
    values = theirs.patch_embed.proj.weight[0].numel()
    drawn = torch.Generator().manual_seed(2)
    pixels = torch.randn(sum(high * wide for high, wide in grids), values, generator=drawn).to(dtype)
    seen = theirs(pixels, grid_thw=torch.tensor([(1, *grid) for grid in grids]))
    expected = [seen.pooler_output, *(getattr(seen, "deepstack_features", None) or ())]
    found = ours(pixels, grids)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        check(one, other)


def test_an_activation_of_another_name_is_refused() -> None:
    with pytest.raises(WeightsError, match=r"the activation 'relu6' is not supported .supported: gelu, "):
        activation("relu6")
