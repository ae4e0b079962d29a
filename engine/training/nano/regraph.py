"""Gives the thinker's weights another graph, without writing them again.

    python -m engine.training.nano.regraph [--folder engine/weights/nano]

A change of ``thinker.Thinker.forward`` changes only what is done with the weights: they stay in a file beside the
graph (``thinker.weights``), which points at where each of them lies in it. At the first time that is the file that was
exported after training, as it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.external_data_helper import set_external_data

from engine.training.nano.thinker import export
from engine.training.nano.train_thinker import from_onnx

FOLDER = Path(__file__).parents[2] / "weights" / "nano"
INLINE = 64  # bytes: smaller constants stay in the graph


def regraph(folder: Path) -> None:
    """Write ``thinker.onnx`` anew over the weights of the one that is there. Raises ValueError if one is not found."""
    path, store = folder / "thinker.onnx", folder / "thinker.weights"
    model, held = from_onnx(path), (store if store.exists() else path).read_bytes()
    new = folder / "new.onnx"
    export(model, new)
    graph = onnx.load(new)
    for weight in graph.graph.initializer:
        if len(weight.raw_data) >= INLINE:
            _point(weight, held, store.name)
    onnx.save(graph, new)
    store.write_bytes(held)
    new.replace(path)


def _point(weight: TensorProto, held: bytes, store: str) -> None:
    at, size = held.find(weight.raw_data), len(weight.raw_data)
    if at < 0:
        raise ValueError(f"{weight.name} is not in {store}: these are other weights; remove {store} to keep them")
    set_external_data(weight, location=store, offset=at, length=size)
    weight.ClearField("raw_data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    regraph(parser.parse_args().folder)


if __name__ == "__main__":
    main()
