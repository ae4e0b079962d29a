"""Compare a quantized checkpoint's thinker with the one of its original, on a text.

    python -m benchmarks.quality FULL QUANTIZED [--text FILE] [--model qwen3_omni] [--device cuda:0] [--dtype bfloat16]

Needs real weights: with random ones, the figures detect faults but do not show quality. It prints:

perplexity   of the text under each checkpoint
divergence   of the quantized next-token distribution from the original (Kullback and Leibler 1951), in nats: the mean,
             and the minimum of the worst 1 % of positions
agreement    positions at which both have the same most likely token
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.worker.nn.quantized import linear
from engine.worker.nn.slots import Batch
from engine.worker.process import stage_loader
from engine.worker.stage import StageConfig

MOST = 2048  # maximum tokens of the text
TEXT = Path(__file__).parents[1] / "README.md"


@dataclass(frozen=True, slots=True)
class Quality:
    """Perplexity (original, quantized), divergence (mean, p99) and agreement."""

    perplexity: tuple[float, float]
    divergence: tuple[float, float]
    agreement: float


@torch.inference_mode()
def next_tokens(folder: Path, text: str, model: str, device: str, dtype: str) -> tuple[Tensor, Tensor]:
    """Return a text's ids [n] and the log probabilities of the next tokens [n, ids], on the CPU."""
    options = {"context": MOST + 64, "remember_mb": 0, "graphs": "off"}
    stage: Any = stage_loader.make(f"{model}.thinker", "thinker", 0, StageConfig(folder, device, dtype, 4, 1, options))
    ids = torch.tensor(stage.chat.encode(text)[:MOST])
    batch = Batch()
    at = np.tile(np.arange(len(ids), dtype=np.float32), (3, 1))
    batch.add(0, 0, stage.net.embed_tokens[ids.to(stage.net.device)], at)
    logits = linear(stage.net.append(batch, [])[0], stage.net.head)
    return ids, logits.float().log_softmax(-1).cpu()


def compared(full: Path, few: Path, text: str, model: str, device: str, dtype: str) -> Quality:
    """Compare two checkpoints, loading one after the other."""
    ids, ours = next_tokens(full, text, model, device, dtype)
    other, theirs = next_tokens(few, text, model, device, dtype)
    if not torch.equal(ids, other) or ours.shape != theirs.shape:
        raise ValueError(f"{few} has a different tokenizer than {full}, so it was not made from it")
    told = ids[1:, None]
    perplexity = [float(one[:-1].gather(1, told).mean().neg().exp()) for one in (ours, theirs)]
    apart = (ours.exp() * (ours - theirs)).sum(1)
    same = (ours.argmax(1) == theirs.argmax(1)).float().mean()
    return Quality((perplexity[0], perplexity[1]), (float(apart.mean()), float(apart.quantile(0.99))), float(same))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("full", type=Path)
    parser.add_argument("quantized", type=Path)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--model", default="qwen3_omni", help="or qwen2_5_omni")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dtype", default="bfloat16")
    asked = parser.parse_args()
    text = asked.text.read_text(encoding="utf-8")
    found = compared(asked.full, asked.quantized, text, asked.model, asked.device, asked.dtype)
    sys.stdout.write(
        f"perplexity {found.perplexity[0]:.3f}, quantized {found.perplexity[1]:.3f}\n"
        f"divergence {found.divergence[0]:.4f} nats in the mean, {found.divergence[1]:.4f} of one in a hundred\n"
        f"agreement  {100 * found.agreement:.1f} % of positions\n"
    )


if __name__ == "__main__":
    main()
