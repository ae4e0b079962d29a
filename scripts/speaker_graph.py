"""Write ``app/weights/campplus.onnx``: the graph of the speaker embedding CAM++, without its weights.

    python scripts/speaker_graph.py MODEL.pt        # the file that `parley pull campplus` brings; needs onnx

PyTorch stores tensors uncompressed in a zip file. So the graph refers to each tensor by its place in MODEL.pt, and
ONNX Runtime reads them there. No one has to convert the model, and no code of a pickle is run.

The architecture is that of Wang et al. 2023 (CAM++), in 3D-Speaker's sizes. Its context is the mean over segments of
2 s. The graph takes at most 2 s of sound, which are one segment.
"""

from __future__ import annotations

import argparse
import pickle
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OUT = Path("app/weights/campplus.onnx")
WEIGHTS = "campplus_cn_en_common.pt"
BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of each dense block."""


class Tensor(NamedTuple):
    """A float32 tensor of the file: the key of its bytes, and its shape."""

    key: str
    shape: tuple[int, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    graph = Graph(parser.parse_args().model)
    campplus(graph)
    OUT.write_bytes(graph.model().SerializeToString())


class _Tensors(pickle.Unpickler):
    """Reads names and shapes. It imports nothing, so no code of the file runs."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "OrderedDict":
            return OrderedDict
        if name == "_rebuild_tensor_v2":
            return lambda key, offset, shape, *_: Tensor(key, shape)
        return name

    def persistent_load(self, pid: Any) -> str:
        return pid[2]


@dataclass
class Graph:
    """A graph under construction: ``x`` is always the name of the value that the next node takes."""

    path: Path
    nodes: list[Any] = field(default_factory=list[Any])
    weights: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        with zipfile.ZipFile(self.path) as archive:
            self.tensors: dict[str, Tensor] = _Tensors(archive.open("archive/data.pkl")).load()
            self.places = {one.filename.rpartition("/")[2]: one for one in archive.infolist()}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node, and return the name of its output."""
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def weight(self, name: str) -> str:
        """Refer to a tensor of the file."""
        if name not in self.weights:
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
            tensor.dims.extend(self.tensors[name].shape)
            place = self.places[self.tensors[name].key]
            entries = {"location": WEIGHTS, "offset": self._offset(place), "length": place.file_size}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            self.weights[name] = tensor
        return name

    def constant(self, name: str, value: Any) -> str:
        """Add a constant to the graph itself."""
        self.weights[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def _offset(self, place: zipfile.ZipInfo) -> int:
        with self.path.open("rb") as file:
            file.seek(place.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
        return place.header_offset + 30 + name + extra

    def model(self) -> Any:
        bands = helper.make_tensor_value_info("bands", TensorProto.FLOAT, [1, 80, "frames"])
        voice = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, 192])
        graph = helper.make_graph(self.nodes, "campplus", [bands], [voice], list(self.weights.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def conv(self, x: str, name: str, bias: bool = False, **attributes: Any) -> str:
        inputs = [x, self.weight(f"{name}.weight"), *([self.weight(f"{name}.bias")] if bias else [])]
        return self.add("Conv", *inputs, **attributes)

    def norm(self, x: str, name: str) -> str:
        parts = ("weight", "bias", "running_mean", "running_var")
        return self.add("BatchNormalization", x, *(self.weight(f"{name}.{part}") for part in parts))

    def norm_relu(self, x: str, name: str) -> str:
        return self.add("Relu", self.norm(x, f"{name}.batchnorm"))


def campplus(graph: Graph) -> None:
    graph.constant("one", np.array([1], np.int64))
    x = _front(graph, "bands")
    x = graph.conv(x, "xvector.tdnn.linear", strides=[2], pads=[2, 2])
    x = graph.norm_relu(x, "xvector.tdnn.nonlinear")
    for n, (layers, dilation) in enumerate(BLOCKS, start=1):
        for layer in range(1, layers + 1):
            x = _dense_layer(graph, x, f"xvector.block{n}.tdnnd{layer}", dilation)
        x = graph.norm_relu(x, f"xvector.transit{n}.nonlinear")
        x = graph.conv(x, f"xvector.transit{n}.linear")
    x = _statistics(graph, graph.norm_relu(x, "xvector.out_nonlinear"))
    x = graph.conv(x, "xvector.dense.linear")
    x = _last_norm(graph, x)
    graph.nodes.append(helper.make_node("Squeeze", [x, graph.constant("last", np.array([2], np.int64))], ["embedding"]))


def _front(graph: Graph, x: str) -> str:
    """The two-dimensional convolutions: [1, 80, frames] to [1, 320, frames]."""
    x = graph.add("Unsqueeze", x, "one")
    x = graph.add("Relu", graph.norm(graph.conv(x, "head.conv1", pads=[1, 1, 1, 1]), "head.bn1"))
    for layer in ("head.layer1", "head.layer2"):
        for n, stride in enumerate((2, 1)):
            x = _residual(graph, x, f"{layer}.{n}", stride)
    x = graph.conv(x, "head.conv2", pads=[1, 1, 1, 1], strides=[2, 1])
    x = graph.add("Relu", graph.norm(x, "head.bn2"))
    return graph.add("Reshape", x, graph.constant("columns", np.array([1, 320, -1], np.int64)))


def _residual(graph: Graph, x: str, name: str, stride: int) -> str:
    y = graph.conv(x, f"{name}.conv1", pads=[1, 1, 1, 1], strides=[stride, 1])
    y = graph.add("Relu", graph.norm(y, f"{name}.bn1"))
    y = graph.norm(graph.conv(y, f"{name}.conv2", pads=[1, 1, 1, 1]), f"{name}.bn2")
    if stride != 1:
        x = graph.norm(graph.conv(x, f"{name}.shortcut.0", strides=[stride, 1]), f"{name}.shortcut.1")
    return graph.add("Relu", graph.add("Add", y, x))


def _dense_layer(graph: Graph, x: str, name: str, dilation: int) -> str:
    """Append a layer's channels to its input. A mask from the context weighs them."""
    y = graph.conv(graph.norm_relu(x, f"{name}.nonlinear1"), f"{name}.linear1")
    y = graph.norm_relu(y, f"{name}.nonlinear2")
    mean = graph.add("ReduceMean", y, axes=[2], keepdims=1)
    context = graph.add("Add", mean, mean)  # the mean of all, and that of the one segment
    mask = graph.add("Relu", graph.conv(context, f"{name}.cam_layer.linear1", bias=True))
    mask = graph.add("Sigmoid", graph.conv(mask, f"{name}.cam_layer.linear2", bias=True))
    pads, local = [dilation, dilation], f"{name}.cam_layer.linear_local"
    return graph.add("Concat", x, graph.add("Mul", graph.conv(y, local, pads=pads, dilations=[dilation]), mask), axis=1)


def _statistics(graph: Graph, x: str) -> str:
    """Mean and unbiased deviation over time: [1, 512, frames] to [1, 1024, 1]."""
    mean = graph.add("ReduceMean", x, axes=[2], keepdims=1)
    apart = graph.add("Sub", x, mean)
    total = graph.add("ReduceSum", graph.add("Mul", apart, apart), graph.constant("time", np.array([2], np.int64)))
    frames = graph.add("Cast", graph.add("Shape", x, start=2, end=3), to=TensorProto.FLOAT)
    less = graph.add("Sub", frames, graph.constant("one_less", np.array([1], np.float32)))
    return graph.add("Concat", mean, graph.add("Sqrt", graph.add("Div", total, less)), axis=1)


def _last_norm(graph: Graph, x: str) -> str:
    name = "xvector.dense.nonlinear.batchnorm"
    graph.constant("scale", np.ones(192, np.float32))
    graph.constant("shift", np.zeros(192, np.float32))
    moments = (graph.weight(f"{name}.running_mean"), graph.weight(f"{name}.running_var"))
    return graph.add("BatchNormalization", x, "scale", "shift", *moments)


if __name__ == "__main__":
    main()
