"""A model of Pocket TTS with random weights, which the library itself loads: its files are those that Kyutai publishes.

Each clause is a babble of its own, by its seed, its text and its voice.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from pocket_tts import TTSModel, export_model_state
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

RATE_HZ = 24_000
FRAME = 1920  # samples
READ = "Hello world, this is a test of the voice. Are you there? Yes! One; two: three..."


def pocket(folder: Path, names: tuple[str, ...] = ("alba", "marius"), seed: int = 0) -> Path:
    """``folder/languages/english``, as the hub has it, but with a YAML file: the package knows no model so small."""
    home = folder / "languages" / "english"
    (home / "embeddings").mkdir(parents=True)
    form = settings(tokenizer(home / "tokenizer.json"), home / "tokenizer.json")
    (home / "english.yaml").write_text(yaml.safe_dump(form))
    others = torch.get_rng_state()
    torch.manual_seed(seed)
    model = TTSModel.load_model(config=home / "english.yaml")
    enliven(model)
    torch.set_rng_state(others)
    save_file(model.state_dict(), home / "model.safetensors")
    for number, name in enumerate(names):
        export_model_state(
            model.get_state_for_audio_prompt(torch.from_numpy(recording(number))[None]),
            home / "embeddings" / f"{name}.safetensors",
        )
    return folder


def enliven(model: Any) -> None:
    """As it is made, such a model says nearly the same whatever it is given: have each letter, voice and seed count."""
    with torch.no_grad():
        torch.nn.init.normal_(model.flow_lm.speaker_proj_weight)
        for name, weights in model.named_parameters():
            if weights.dim() > 1 and "encoder" not in name:
                weights *= 3.0 if name.startswith("flow_lm") else 1.6


def recording(number: int = 0, seconds: float = 4.0) -> np.ndarray:
    """What somebody sounds like."""
    noise = np.random.default_rng(number).normal(0, 0.1, round(seconds * RATE_HZ))
    return (noise + np.sin(np.arange(len(noise)) * (0.02 + 0.01 * number)) / 2).clip(-1, 1).astype(np.float32)


def tokenizer(path: Path) -> int:
    """Write one that reads English; how many tokens it has."""
    pieces = Tokenizer(models.BPE(unk_token="<unk>"))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    pieces.decoder = decoders.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    letters = list(string.ascii_letters + string.digits + string.punctuation)
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>"], initial_alphabet=letters)
    pieces.train_from_iterator([READ], trainer)
    pieces.save(str(path))
    return pieces.get_vocab_size()


def settings(tokens: int, tokenizer: Path) -> dict[str, Any]:
    """The networks, as small as they may be."""
    width, codec = 64, 32
    transformer = {"d_model": codec, "num_heads": 4, "num_layers": 1, "layer_scale": 0.01, "context": 50,
                   "dim_feedforward": 64, "input_dimension": codec, "output_dimensions": [codec]}  # fmt: skip
    convolutions = {"dimension": codec, "channels": 1, "n_filters": 8, "n_residual_layers": 1, "ratios": [6, 5, 4],
                    "kernel_size": 7, "residual_kernel_size": 3, "last_kernel_size": 3, "dilation_base": 2,
                    "pad_mode": "constant", "compress": 2}  # fmt: skip
    table = {"dim": width, "n_bins": tokens, "tokenizer": "tokenizers", "tokenizer_path": str(tokenizer)}
    return {
        "replace_characters": {"’": "'"},
        "flow_lm": {"insert_bos_before_voice": True, "dtype": "float32", "flow": {"depth": 2, "dim": 32},
                    "transformer": {"d_model": width, "hidden_scale": 2, "max_period": 10_000, "num_heads": 4,
                                    "num_layers": 2},
                    "lookup_table": table},
        "mimi": {"dtype": "float32", "sample_rate": RATE_HZ, "inner_dim": 16, "outer_dim": codec, "channels": 1,
                 "frame_rate": 12.5, "seanet": convolutions, "transformer": transformer,
                 "quantizer": {"dimension": 16, "output_dimension": codec}},
    }  # fmt: skip
