"""The vision networks, and their export to ONNX.

The finder is a small U-shaped convolutional network that outputs centres and sizes of things (objects as points,
arXiv:1904.07850); its bottleneck also predicts the background colour. The reader classifies fixed-size crops. Both get
the picture's colour statistics.
"""

from __future__ import annotations

import copy
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import fusion

from engine.training.nano.thinker import halve_weights
from engine.worker.models.nano.eyes import NOTHING, PIECE
from engine.worker.models.nano.picture import SIDE, STATISTICS
from engine.worker.models.nano.scene import COLOURS


class Layer(nn.Module):
    """Convolution, normalisation, rectifier, with a residual connection if the sizes match."""

    def __init__(self, wide: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv: nn.Conv2d = nn.Conv2d(wide, out, 3, stride, 1, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(out)
        self.adds = wide == out and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        made = F.relu(self.norm(self.conv(x)))
        return x + made if self.adds else made


class Finder(nn.Module):
    """Maps pictures [B, 3, SIDE / 2, SIDE / 2] and statistics to fields [B, 5, 32, 32] and colour logits [B, 11]."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(Layer(3, 16, 2), Layer(16, 32, 2), Layer(32, 32))
        self.middle = nn.Sequential(Layer(32, 48, 2), Layer(48, 48), Layer(48, 48))
        self.coarse = nn.Sequential(Layer(48, 80, 2), Layer(80, 80), Layer(80, 80))
        self.down_coarse, self.down_middle = nn.Conv2d(80, 48, 1), nn.Conv2d(48, 32, 1)
        self.join_middle, self.join_fine = Layer(48, 48), Layer(32, 32)
        self.head = nn.Conv2d(32, 5, 1)
        self.colour = nn.Sequential(nn.Linear(80 + STATISTICS, 64), nn.ReLU(), nn.Linear(64, len(COLOURS)))
        nn.init.constant_(self.head.bias[:1], -4.0)  # pyright: ignore[reportOptionalSubscript]  # few places are a middle

    def forward(self, picture: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.fine(picture * 2 - 1)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.join_middle(middle + F.interpolate(self.down_coarse(coarse), scale_factor=2.0))
        fine = self.join_fine(fine + F.interpolate(self.down_middle(middle), scale_factor=2.0))
        return self.head(fine), self.colour(torch.cat((coarse.mean((2, 3)), told), 1))


class Reader(nn.Module):
    """Maps crops [B, 3, PIECE, PIECE] and statistics to logits of kinds [B, NOTHING + 1] and of colours [B, 11]."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(
            Layer(3, 24, 2), Layer(24, 48), Layer(48, 72, 2), Layer(72, 72), Layer(72, 72), Layer(72, 56, 2)
        )
        self.think = nn.Sequential(nn.Linear(56 * 16 + STATISTICS, 128), nn.ReLU(), nn.Dropout(0.1))
        self.kind, self.colour = nn.Linear(128, NOTHING + 1), nn.Linear(128, len(COLOURS))

    def forward(self, pieces: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.think(torch.cat((self.look(pieces * 2 - 1).flatten(1), told), 1))
        return self.kind(seen), self.colour(seen)


def fused(model: nn.Module) -> nn.Module:
    """Return a copy for inference, with normalisations folded into the convolutions."""
    made = copy.deepcopy(model).eval()
    for layer in made.modules():
        if isinstance(layer, Layer):
            layer.conv, layer.norm = fusion.fuse_conv_bn_eval(layer.conv, layer.norm), nn.Identity()  # type: ignore[arg-type]
    return made


def export(finder: Finder, reader: Reader, folder: Path) -> None:
    """Write ``eyes_find.onnx`` and ``eyes_read.onnx``; weights are stored as fp16 and cast once at load."""
    half = SIDE // 2
    _export(finder, "picture", torch.zeros(2, 3, half, half), ["fields", "colours"], folder / "eyes_find.onnx")
    _export(reader, "pieces", torch.zeros(2, 3, PIECE, PIECE), ["kinds", "colours"], folder / "eyes_read.onnx")


def _export(model: nn.Module, seen: str, example: Tensor, outputs: list[str], path: Path) -> None:
    names = [seen, "told"]
    torch.onnx.export(
        fused(model), (example, torch.zeros(2, STATISTICS)), str(path), input_names=names, output_names=outputs,
        dynamic_axes={name: {0: "b"} for name in (*names, *outputs)}, opset_version=18, dynamo=False,
        do_constant_folding=False,
    )  # fmt: skip
    graph = onnx.load(path)
    halve_weights(graph)
    onnx.save(graph, path)
