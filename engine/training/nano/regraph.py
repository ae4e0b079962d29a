"""Exports the thinker's graph again without rewriting its weights.

    python -m engine.training.nano.regraph [--folder engine/weights/nano]

Needed after a change of ``thinker.Thinker.forward``. The weights stay in ``thinker.weights``, and the graph refers to
their offsets in it. The first run makes that file from the ``thinker.onnx`` exported after training, byte for byte.
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
    """Write ``thinker.onnx`` again for the existing weights. Raises ValueError if a weight is not found in them."""
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
        raise ValueError(
            f"{weight.name} is not in {store}: to keep the weights of thinker.onnx, remove {store} and retry"
        )
    set_external_data(weight, location=store, offset=at, length=size)
    weight.ClearField("raw_data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    regraph(parser.parse_args().folder)


if __name__ == "__main__":
    main()
