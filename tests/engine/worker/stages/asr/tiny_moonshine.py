"""Streaming ears that moonshine-voice loads, of a few nodes: a word for each half second, drawn from how loud it is.

The names of the files, of what goes in and out, and the configuration are those of the published models. The library's
own detector of voices stands before them, so what they are given has to be speech.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

WORDS = ["hello", "world", "it", "is", "a", "fine", "day", "one"]
TOKENS = ["<unk>", "<s>", "</s>", *(f"▁{word}" for word in WORDS)]
COUNT, BEGIN, END = len(TOKENS), 1, 2
BANDS = 8
"""Loudnesses in a frame of 20 ms."""
BIAS = 1e-6
"""A word is likelier than the end."""
STRIDE = 25
"""Frames from word to word."""


def streaming(folder: Path, **told: int) -> Path:
    """A folder as of tiny-streaming-en."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "encoder_dim": BANDS, "decoder_dim": COUNT, "depth": 1, "nheads": 1, "head_dim": COUNT, "vocab_size": COUNT,
        "bos_id": BEGIN, "eos_id": END, "frame_len": 80, "total_lookahead": 4, "d_model_frontend": 2, "c1": 2, "c2": 2,
        "max_seq_len": 448,
    }  # fmt: skip
    (folder / "streaming_config.json").write_text(json.dumps(config | told), encoding="utf-8")
    _frontend(folder / "frontend.ort")
    _save(folder / "encoder.ort", [_node("Identity", ["features"], "encoded")],
          [_floats("features", 1, "W", BANDS)], [_floats("encoded", 1, "W", BANDS)], {})  # fmt: skip
    _adapter(folder / "adapter.ort")
    nodes = [_node("Unsqueeze", ["memory", "first"], f"{one}_cross") for one in "kv"]
    cross = [_floats(f"{one}_cross", 1, 1, 1, "M", COUNT) for one in "kv"]
    _save(folder / "cross_kv.ort", nodes, [_floats("memory", 1, "M", COUNT)], cross, {"first": [0, 1]})
    _decoder(folder / "decoder_kv.ort")
    written = [token.encode() for token in TOKENS]
    (folder / "tokenizer.bin").write_bytes(b"".join(bytes([len(token)]) + token for token in written))
    return folder


def words_of(pcm: np.ndarray) -> str:
    """What the networks say of int16 [samples], computed here: of whole pieces of 80 ms."""
    wave = pcm[: len(pcm) // 1280 * 1280].astype(np.float32) / 32768
    scores = np.abs(wave).reshape(-1, BANDS, 320 // BANDS).mean(-1) @ _weights() + BIAS
    return " ".join(WORDS[word] for word in scores[::STRIDE].argmax(1))


def _frontend(path: Path) -> None:
    """1280 samples -> 4 frames; what it keeps between two calls is handed on."""
    nodes = [
        _node("Abs", ["audio_chunk"], "loud"),
        _node("Reshape", ["loud", "shape"], "parts"),
        _node("ReduceMean", ["parts", "last"], "features", keepdims=0),
        *(_node("Identity", [name], f"{name}_out") for name in ("sample_buffer", "conv1_buffer", "conv2_buffer")),
        *(_node("Identity", [name], f"{name}_out") for name in ("sample_len", "frame_count")),
    ]
    kept = [_floats("sample_buffer", 1, 79), _ints("sample_len"), _floats("conv1_buffer", 1, 2, 4),
            _floats("conv2_buffer", 1, 2, 4), _ints("frame_count")]  # fmt: skip
    left = [_floats("sample_buffer_out", 1, 79), _ints("sample_len_out"), _floats("conv1_buffer_out", 1, 2, 4),
            _floats("conv2_buffer_out", 1, 2, 4), _ints("frame_count_out")]  # fmt: skip
    inputs, outputs = [_floats("audio_chunk", 1, "samples"), *kept], [_floats("features", 1, "F", BANDS), *left]
    _save(path, nodes, inputs, outputs, {"shape": [1, -1, BANDS, 320 // BANDS], "last": [3]})


def _adapter(path: Path) -> None:
    """Frames -> how likely each word is; the sign of a difference says more than its size."""
    wide = np.zeros((BANDS, COUNT), np.float32)
    wide[:, 3:] = _weights()
    bias = np.array([0, 0, 0] + [BIAS] * len(WORDS), np.float32)
    nodes = [_node("MatMul", ["encoded", "weights"], "scores"), _node("Add", ["scores", "bias"], "memory_"),
             _node("Cast", ["pos_offset"], "at", to=T.FLOAT), _node("Mul", ["at", "nothing"], "zero"),
             _node("Add", ["memory_", "zero"], "memory")]  # fmt: skip
    values = {"weights": wide, "bias": bias, "nothing": np.zeros(1, np.float32)}
    inputs = [_floats("encoded", 1, "N", BANDS), _ints("pos_offset")]
    _save(path, nodes, inputs, [_floats("memory", 1, "N", COUNT)], values)


def _weights() -> np.ndarray:
    drawn = np.random.default_rng(4).normal(0, 1, (BANDS, len(WORDS))).astype(np.float32)
    return drawn - drawn.mean(0)


def _decoder(path: Path) -> None:
    """Its n-th answer is the likeliest word of the n-th half second; behind the last of them it is over."""
    nodes = [
        _node("Shape", ["k_self"], "cache"), _node("Gather", ["cache", "three"], "from"),
        _node("Shape", ["token"], "tokens"), _node("Gather", ["tokens", "one"], "many"),
        _node("Add", ["from", "many"], "to"), _node("Range", ["from", "to", "step"], "places_"),
        _node("Mul", ["places_", "stride"], "places"),
        _node("Shape", ["out_k_cross"], "heard"), _node("Gather", ["heard", "three"], "length"),
        _node("Min", ["places", "length"], "at"),
        _node("Concat", ["out_k_cross", "over"], "answers", axis=3),
        _node("Gather", ["answers", "at"], "rows", axis=3),
        _node("Squeeze", ["rows", "outer"], "logits"),
        _node("Reshape", ["many", "flat"], "many_"),
        _node("Concat", ["ones", "many_", "width"], "new_shape", axis=0),
        _node("Expand", ["nothing", "new_shape"], "new"),
        *(_node("Concat", [f"{one}_self", "new"], f"out_{one}_self", axis=3) for one in "kv"),
    ]  # fmt: skip
    over = np.zeros((1, 1, 1, 1, COUNT), np.float32)
    over[..., END] = 9
    values = {
        "three": np.array(3), "one": np.array(1), "step": np.array(1), "stride": np.array(STRIDE), "over": over,
        "outer": [0, 1], "flat": [1], "ones": [1, 1, 1], "width": [COUNT],
        "nothing": np.zeros((1, 1, 1, 1, 1), np.float32),
    }  # fmt: skip
    inputs = [_ints("token", 1, "L"), *(_floats(f"{one}_self", 1, 1, 1, "C", COUNT) for one in "kv"),
              *(_floats(f"out_{one}_cross", 1, 1, 1, "M", COUNT) for one in "kv")]  # fmt: skip
    outputs = [_floats("logits", 1, "L", COUNT), *(_floats(f"out_{one}_self", 1, 1, 1, "K", COUNT) for one in "kv")]
    _save(path, nodes, inputs, outputs, values)


def _node(kind: str, inputs: list[str], output: str, **settings: Any) -> Any:
    return helper.make_node(kind, inputs, [output], **settings)


def _floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, T.FLOAT, shape)


def _ints(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, T.INT64, shape or (1,))


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], values: dict[str, Any]) -> None:
    """In ONNX Runtime's own format, which the library reads alone."""
    arrays = {name: value if isinstance(value, np.ndarray) else np.array(value) for name, value in values.items()}
    constants = [
        numpy_helper.from_array(array if array.dtype == np.float32 else array.astype(np.int64), name)
        for name, array in arrays.items()
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "tiny", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=9,
    )  # fmt: skip
    settings = ort.SessionOptions()
    settings.optimized_model_filepath = str(path)
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.add_session_config_entry("session.save_model_format", "ORT")
    settings.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    onnx.checker.check_model(model)
