"""Converts the voice's networks to ONNX files and back; large weights are stored as float16.

    python -m engine.training.nano.export --work DIR --out engine/weights/nano
    python -m engine.training.nano.export --work DIR --back engine/weights/nano

The first command converts DIR/talker.pt and code2wav.pt to talker_text, talker_step and code2wav.onnx. The second one
converts them back, so that training can continue, and writes each voice's codec. float16 weights are cast to float32
once when ONNX Runtime loads a file. Weights keep their torch names.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from engine.training.nano.code2wav import Filters
from engine.training.nano.codec import BOOKS, LATENT, SIZE, Codec, path, side_by_side
from engine.training.nano.features import MELS
from engine.training.nano.talker import HEADS, LAYERS, PLACES, WIDTH, WINDOW, Talker, TalkerStep
from engine.worker.models.nano.voice import VOICES

SMALL = 1024  # elements; smaller tensors (norms, biases) stay float32
TEXT_WIDTH = 192


@dataclass(frozen=True, slots=True)
class Graph:
    """A network with example inputs and the names of its inputs and outputs; `free` names the variable axes."""

    net: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    free: dict[str, dict[int, str]]
    prefix: str = ""
    """Prefix of its weights in the checkpoint."""


def graphs(talker: Talker, filters: Filters) -> dict[str, Graph]:
    ring = torch.zeros(2, LAYERS, 2, HEADS, WINDOW - 1, WIDTH // HEADS)
    slow, fast = filters.initial(2)
    voice = torch.tensor([0, 1])
    step_inputs = {
        "states": torch.zeros(2, TEXT_WIDTH),
        "places": torch.zeros(2, PLACES),
        "previous": torch.zeros(2, LATENT),
        "position": torch.tensor([0, 3]),
        "ring": ring,
        "partner": torch.tensor([1, 1]),
        "guidance": torch.tensor([2.0, 1.0]),
        "voice": voice,
    }
    batch = {0: "batch"}
    return {
        "talker_text": Graph(
            talker.text,
            {"letters": torch.zeros(2, 21, dtype=torch.long), "voice": voice},
            ("states", "duration", "first_phone", "second_phone"),
            {"letters": {0: "batch", 1: "letters"}, "voice": batch},
        ),
        "talker_step": Graph(
            TalkerStep(talker), step_inputs, ("codes", "latent", "new"), dict.fromkeys(step_inputs, batch)
        ),
        "code2wav": Graph(
            filters,
            {"codes": torch.zeros(2, 3, BOOKS, dtype=torch.long), "voice": voice, "slow": slow, "fast": fast},
            ("controls", "slow_out", "fast_out"),
            {"codes": {0: "batch", 1: "frames"}, "voice": batch, "slow": batch, "fast": batch},
        ),
    }


def export(graph: Graph, path: Path) -> None:
    """Write one network and check it with ONNX's checker."""
    graph.net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph.net,
            tuple(graph.inputs.values()),
            str(path),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_axes=graph.free,
            opset_version=17,
            do_constant_folding=False,
            dynamo=False,
        )
    model = onnx.load(path)
    halve(model)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def halve(model: onnx.ModelProto) -> None:
    """Store large float32 weights as float16, and cast them back at the start of the graph."""
    casts = []
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT and np.prod(weight.dims) >= SMALL:
            name = weight.name
            half = numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), name + ".half")
            weight.CopyFrom(half)
            casts.append(helper.make_node("Cast", [half.name], [name], to=TensorProto.FLOAT, name=f"cast_{name}"))
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(casts + nodes)


def weights(path: Path) -> dict[str, Tensor]:
    """Return all weights of an exported file as float32 by their torch names."""
    found = {}
    for weight in onnx.load(path).graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.dtype in (np.float16, np.float32):
            found[weight.name.removesuffix(".half")] = torch.from_numpy(array.astype(np.float32))
    return found


def read_voice(folder: Path) -> tuple[Talker, Filters]:
    """Return the torch networks with the exported weights, for equality tests and further training."""
    talker, filters = blank()
    load(talker.text, weights(folder / "talker_text.onnx"))
    step = {name.removeprefix("talker."): value for name, value in weights(folder / "talker_step.onnx").items()}
    load(talker, step, missing="text.")
    load(filters, weights(folder / "code2wav.onnx"))
    return talker.eval(), filters.eval()


def load(net: nn.Module, found: dict[str, Tensor], missing: str = "?") -> None:
    """Load weights into a network; only names with the prefix `missing` may be absent."""
    known = net.state_dict()
    absent = [name for name in known if name not in found and not name.startswith(missing)]
    if absent:
        raise ValueError(f"weights missing from the file: {', '.join(absent)}; export it again")
    net.load_state_dict({name: found[name] for name in known if name in found}, strict=False)


def codec_of(filters: Filters, voice: int) -> Codec:
    """Return a voice's codec from the weights of code2wav."""
    own = {name: getattr(filters, name)[voice] for name in Codec.__slots__ if name != "books"}
    return Codec(**own, books=filters.books[:, SIZE * voice : SIZE * (voice + 1)])


def blank() -> tuple[Talker, Filters]:
    """Return networks of all voices without weights."""
    codecs = [blank_codec() for _ in VOICES]
    return Talker(side_by_side(codecs)), Filters(codecs)


def blank_codec() -> Codec:
    stacked = 4 * (MELS + 2)
    return Codec(
        torch.zeros(MELS),
        torch.ones(MELS),
        torch.zeros(stacked),
        torch.zeros(stacked, LATENT),
        torch.zeros(BOOKS, SIZE, LATENT),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--back", type=Path)
    args = parser.parse_args()
    if args.back:
        talker, filters = read_voice(args.back)
        torch.save(talker.state_dict(), args.work / "talker.pt")
        torch.save(filters.state_dict(), args.work / "code2wav.pt")
        for index, voice in enumerate(VOICES):
            path(args.work, voice).parent.mkdir(parents=True, exist_ok=True)
            codec_of(filters, index).save(path(args.work, voice))
        return
    talker, filters = blank()
    talker.load_state_dict(torch.load(args.work / "talker.pt"))
    filters.load_state_dict(torch.load(args.work / "code2wav.pt"))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, graph in graphs(talker, filters).items():
        export(graph, args.out / f"{name}.onnx")
        print(name, f"{(args.out / f'{name}.onnx').stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
