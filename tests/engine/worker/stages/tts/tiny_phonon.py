"""A model of Phonon with random weights, which the library itself loads: the networks are those of Pocket TTS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from pocket_tts import TTSModel
from safetensors.torch import save_file

from tests.engine.worker.stages.tts import tiny_pocket

WIDTH, CODEC, LATENT = 64, 32, 16


def phonon(folder: Path, names: tuple[str, ...] = ("alba", "marius"), endless: bool = False, **config: Any) -> Path:
    """``endless``: a clause is as long as it may be, some seconds."""
    (folder / "voices").mkdir(parents=True)
    tokens = tiny_pocket.tokenizer(folder / "tokenizer.json")
    settings = tiny_pocket.settings(tokens, folder / "tokenizer.json")
    settings["flow_lm"]["insert_bos_before_voice"] = False
    settings["mimi"] |= {"inner_dim": None, "outer_dim": None}
    path = folder / "pocket.yaml"
    path.write_text(yaml.safe_dump(settings))
    others = torch.get_rng_state()
    torch.manual_seed(0)
    model = TTSModel.load_model(config=path)
    path.unlink()
    tiny_pocket.enliven(model)
    torch.nn.init.constant_(model.flow_lm.out_eos.bias, -100.0 if endless else 0.0)
    save_file({name: one.contiguous() for name, one in model.state_dict().items()}, folder / "model.safetensors")
    for name in names:
        save_file({"audio_prompt": torch.randn(1, 20, WIDTH)}, folder / "voices" / f"{name}.safetensors")
    torch.set_rng_state(others)
    (folder / "config.json").write_text(json.dumps(_config(tokens) | config))
    return folder


def _config(tokens: int) -> dict[str, Any]:
    """As ``TTSConfig`` of the library reads it."""
    return {
        "flow_lm": {"d_model": WIDTH, "num_heads": 4, "num_layers": 2, "dim_feedforward": 2 * WIDTH,
                    "max_period": 10_000.0, "n_bins": tokens, "lut_dim": WIDTH, "flow_dim": 32, "flow_depth": 2,
                    "ldim": LATENT},
        "mimi": {"channels": 1, "sample_rate": 24_000, "frame_rate": 12.5, "dimension": CODEC,
                 "quantizer_dimension": LATENT, "quantizer_output_dimension": CODEC, "n_filters": 8,
                 "n_residual_layers": 1, "ratios": [6, 5, 4], "kernel_size": 7, "last_kernel_size": 3,
                 "residual_kernel_size": 3, "dilation_base": 2, "compress": 2, "transformer_d_model": CODEC,
                 "transformer_num_heads": 4, "transformer_num_layers": 1, "transformer_layer_scale": 0.01,
                 "transformer_context": 50, "transformer_max_period": 10_000.0, "transformer_dim_feedforward": 64},
        "temp": 0.3, "lsd_decode_steps": 1, "eos_threshold": -4.0, "conditioners": [], "model_id": None,
        "fuser": {"sum": [], "streaming_sum": [], "prepend": [], "cross": []}, "languages": ["en"],
    }  # fmt: skip
