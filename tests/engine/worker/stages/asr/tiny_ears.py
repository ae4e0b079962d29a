"""Streaming ears that sherpa-onnx loads, of a few nodes: what they hear are tokens drawn at random from the spectrum.

Both kinds of zipformer, with the states of one layer. One state is used, so that two streams that were mixed up would
hear something else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

TOKENS = ["<blk>", "▁HELLO", "▁WOR", "LD", "▁IT", "▁IS", "▁A", "▁FINE", "▁DA", "Y", "S", "▁ONE"]
CHUNK, FRAMES = 45, 32
"""Frames that a step looks at, and by how many it goes on."""
SAID = {
    "encoder_dims": "4", "query_head_dims": "2", "value_head_dims": "2", "num_heads": "1", "num_encoder_layers": "1",
    "cnn_module_kernels": "3", "left_context_len": "2", "T": f"{CHUNK}", "decode_chunk_len": f"{FRAMES}",
}  # fmt: skip
STATES: dict[str, tuple[int, list[int | str]]] = {
    "key": (T.FLOAT, [2, "N", 2]), "nonlin": (T.FLOAT, [1, "N", 2, 3]), "value1": (T.FLOAT, [2, "N", 2]),
    "value2": (T.FLOAT, [2, "N", 2]), "conv1": (T.FLOAT, ["N", 4, 1]), "conv2": (T.FLOAT, ["N", 4, 1]),
    "embed": (T.FLOAT, ["N", 128, 3, 19]), "processed": (T.INT64, ["N"]),
}  # fmt: skip


def transducer(folder: Path, **said: str) -> Path:
    """Encoder, decoder and joiner."""
    folder.mkdir(parents=True, exist_ok=True)
    _network(folder / "encoder-1.onnx", "encoder_out", {"model_type": "zipformer2"} | SAID | said)
    count = len(TOKENS)
    embedding = numpy_helper.from_array(np.random.default_rng(2).normal(0, 0.5, (count, count)).astype(np.float32), "e")
    rows = [helper.make_node("Gather", ["e", "y"], ["rows"]),
            helper.make_node("ReduceMean", ["rows", "axis1"], ["decoder_out"], keepdims=0)]  # fmt: skip
    inputs = [helper.make_tensor_value_info("y", T.INT64, ["N", 2])]
    outputs = [helper.make_tensor_value_info("decoder_out", T.FLOAT, ["N", count])]
    _save(
        folder / "decoder-1.onnx", rows, inputs, outputs, [embedding], {"vocab_size": f"{count}", "context_size": "2"}
    )
    both = [helper.make_tensor_value_info(name, T.FLOAT, ["N", count]) for name in ("encoder_out", "decoder_out")]
    logit = [helper.make_tensor_value_info("logit", T.FLOAT, ["N", count])]
    add = [helper.make_node("Add", ["encoder_out", "decoder_out"], ["logit"])]
    _save(folder / "joiner-1.onnx", add, both, logit, [], {"joiner_dim": f"{count}"})
    return _tokens(folder)


def ctc(folder: Path, **said: str) -> Path:
    """One network that tells tokens by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    _network(folder / "model.onnx", "log_probs", {"model_type": "zipformer2ctc"} | SAID | said)
    return _tokens(folder)


def paraformer(folder: Path, **said: str) -> Path:
    """An encoder that tells what is heard and how much of a word it is, and a decoder of the words."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["<blank>", *(token.replace("▁", "").lower() for token in TOKENS[1:])]
    count = len(names)
    weights = np.random.default_rng(1).normal(0, 1, (560, count))
    weights = (weights - weights.mean(0)) * np.array([0] + [1.0] * (count - 1))
    values = {"weights": weights, "quiet": -60.0, "part": 0.004, "none": 0.0, "most": 0.9}
    constants = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items()]
    nodes = [
        helper.make_node("MatMul", ["speech", "weights"], ["enc"]),
        helper.make_node("ReduceMax", ["enc", "axis2"], ["loudest"], keepdims=0),
        helper.make_node("Add", ["loudest", "quiet"], ["louder"]),
        helper.make_node("Mul", ["louder", "part"], ["parts"]),
        helper.make_node("Clip", ["parts", "none", "most"], ["alphas"]),
        helper.make_node("Identity", ["speech_lengths"], ["enc_len"]),
    ]
    lengths = [helper.make_tensor_value_info(name, T.INT32, [1]) for name in ("speech_lengths", "enc_len")]
    told = {"model_type": "paraformer", "vocab_size": f"{count}", "lfr_window_size": "7", "lfr_window_shift": "6",
            "encoder_output_size": f"{count}", "decoder_num_blocks": "1", "decoder_kernel_size": "3",
            "neg_mean": ",".join(["-8"] * 560), "inv_stddev": ",".join(["3"] * 560)}  # fmt: skip
    outputs = [_floats("enc", 1, "S", count), lengths[1], _floats("alphas", 1, "S")]
    _save(
        folder / "encoder.int8.onnx",
        nodes,
        [_floats("speech", 1, "S", 560), lengths[0]],
        outputs,
        constants,
        told | said,
    )
    nodes = [
        helper.make_node("ReduceMean", ["in_cache_0", "axis2"], ["before"], keepdims=0),  # [1, count]
        helper.make_node("Add", ["acoustic_embeds", "before"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["sample_ids"], axis=2, keepdims=0),
        helper.make_node("ReduceMean", ["acoustic_embeds", "axis1"], ["mean"], keepdims=0),
        helper.make_node("Unsqueeze", ["mean", "axis2"], ["column"]),
        helper.make_node("Concat", ["column", "column"], ["out_cache_0"], axis=2),
    ]
    lengths = [helper.make_tensor_value_info(name, T.INT32, [1]) for name in ("enc_len", "acoustic_embeds_len")]
    inputs = [_floats("enc", 1, "S", count), lengths[0], _floats("acoustic_embeds", 1, "N", count), lengths[1],
              _floats("in_cache_0", 1, count, 2)]  # fmt: skip
    outputs = [_floats("logits", 1, "N", count), helper.make_tensor_value_info("sample_ids", T.INT64, [1, "N"]),
               _floats("out_cache_0", 1, count, 2)]  # fmt: skip
    _save(folder / "decoder.int8.onnx", nodes, inputs, outputs, [], {})
    return _tokens(folder, names)


def nemo_ctc(folder: Path, **said: str) -> Path:
    """Ears of whole clips: one network, as of NeMo."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes, inputs, weights = _clip("logprobs")
    said = {"model_type": "EncDecCTCModelBPE", "normalize_type": "", **_CLIP} | said
    _save(folder / "model.onnx", nodes, inputs, [_floats("logprobs", "N", "S", _COUNT)], weights, said)
    return _tokens(folder, [*TOKENS[1:], "<blk>"])


def nemo_transducer(folder: Path, **said: str) -> Path:
    """Ears of whole clips: three networks, as of Parakeet, which tell how many frames a token lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes, inputs, weights = _clip("rows")
    nodes += [helper.make_node("Transpose", ["rows"], ["outputs"], perm=[0, 2, 1]),
              helper.make_node("Div", ["length", "quarter"], ["lengths"])]  # fmt: skip
    said = {"model_type": "EncDecRNNTBPEModel", "normalize_type": "", "url": "tiny-tdt", "pred_rnn_layers": "1",
            "pred_hidden": "2", **_CLIP} | said  # fmt: skip
    outputs = [_floats("outputs", "N", _COUNT, "S"), helper.make_tensor_value_info("lengths", T.INT64, ["N"])]
    _save(folder / "encoder.onnx", nodes, inputs, outputs, weights, said)
    drawn = np.random.default_rng(2).normal(0, 0.5, (_COUNT, _COUNT)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["e", "targets"], ["rows"]),
             helper.make_node("Transpose", ["rows"], ["outputs"], perm=[0, 2, 1]),
             *(helper.make_node("Identity", [name], [f"{name}o"]) for name in ("target_length", "state0", "state1")),
             ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("targets", T.INT32, ["N", "U"]),
              helper.make_tensor_value_info("target_length", T.INT32, ["N"]),
              _floats("state0", 1, "N", 2), _floats("state1", 1, "N", 2)]  # fmt: skip
    outputs = [_floats("outputs", "N", _COUNT, "U"), helper.make_tensor_value_info("target_lengtho", T.INT32, ["N"]),
               _floats("state0o", 1, "N", 2), _floats("state1o", 1, "N", 2)]  # fmt: skip
    _save(folder / "decoder.onnx", nodes, inputs, outputs, [numpy_helper.from_array(drawn, "e")], {})
    nodes = [helper.make_node("Add", ["encoder_outputs", "decoder_outputs"], ["both_"]),
             helper.make_node("Reshape", ["both_", "flat"], ["row"]),
             helper.make_node("Concat", ["row", "lasts"], ["logit"], axis=3)]  # fmt: skip
    lasts = numpy_helper.from_array(np.array([[[[0, 1]]]], np.float32), "lasts")  # a token lasts one frame
    inputs = [_floats("encoder_outputs", 1, _COUNT, 1), _floats("decoder_outputs", 1, _COUNT, 1)]
    _save(folder / "joiner.onnx", nodes, inputs, [_floats("logit", 1, 1, 1, _COUNT + 2)], [lasts], {})
    return _tokens(folder, [*TOKENS[1:], "<blk>"])


def clip_zipformer(folder: Path, **said: str) -> Path:
    """Ears of whole clips: a transducer of icefall's, whose blank is the first token."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes, inputs, weights = _clip("encoder_out", source="frames_", blank=0)
    nodes = [helper.make_node("Transpose", ["x"], ["frames_"], perm=[0, 2, 1]), *nodes,
             helper.make_node("Div", ["x_lens", "quarter"], ["encoder_out_lens"])]  # fmt: skip
    inputs = [_floats("x", "N", "frames", 80), helper.make_tensor_value_info("x_lens", T.INT64, ["N"])]
    outputs = [
        _floats("encoder_out", "N", "S", _COUNT),
        helper.make_tensor_value_info("encoder_out_lens", T.INT64, ["N"]),
    ]
    told = {"model_type": "zipformer2", "comment": "non-streaming zipformer2"} | said
    _save(folder / "encoder-epoch-1-avg-1.onnx", nodes, inputs, outputs, weights, told)
    transducer(folder / "streaming")
    for part in ("decoder", "joiner"):
        (folder / "streaming" / f"{part}-1.onnx").rename(folder / f"{part}-epoch-1-avg-1.onnx")
    return _tokens(folder)


def streaming_nemo_ctc(folder: Path, **said: str) -> Path:
    """Streaming ears: one network of NeMo's, which takes a chunk and three caches."""
    folder.mkdir(parents=True, exist_ok=True)
    _cache_aware(folder / "model.onnx", "logprobs", said)
    return _tokens(folder, [*TOKENS[1:], "<blk>"])


def streaming_nemo_transducer(folder: Path, **said: str) -> Path:
    """Streaming ears: three networks of NeMo's, of which the encoder takes a chunk and three caches."""
    nemo_transducer(folder)
    joiner = onnx.load(folder / "joiner.onnx")
    graph = joiner.graph
    del graph.node[2]  # a streaming model tells no durations
    graph.node[1].output[0] = "logit"
    graph.output[0].CopyFrom(_floats("logit", 1, 1, 1, _COUNT))
    onnx.save(joiner, folder / "joiner.onnx")
    _cache_aware(folder / "encoder.onnx", "outputs", {"pred_rnn_layers": "1", "pred_hidden": "2"} | said)
    return folder


def _cache_aware(path: Path, out: str, said: dict[str, str]) -> None:
    """Features of a chunk and caches -> scores and caches, with the names and metadata of NeMo's export.

    What was heard in the last chunk moves the scores of the next one.
    """
    nodes, _, weights = _clip("now")
    nodes += [
        helper.make_node("Transpose", ["cache_last_time"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("Squeeze", ["turned", "axis1"], ["before"]),  # [N, 1, tokens]
        helper.make_node("Add", ["now", "before"], ["scores"]),
        helper.make_node("Transpose", ["scores"], [out], perm=[0, 1, 2] if out == "logprobs" else [0, 2, 1]),
        helper.make_node("Div", ["length", "quarter"], ["encoded_lengths"]),
        helper.make_node("ReduceMean", ["heard", "axis1"], ["mean"], keepdims=1),
        helper.make_node("Unsqueeze", ["mean", "axis1"], ["wide"]),
        helper.make_node("Transpose", ["wide"], ["cache_last_time_next"], perm=[0, 1, 3, 2]),
        helper.make_node("Identity", ["cache_last_channel"], ["cache_last_channel_next"]),
        helper.make_node("Add", ["cache_last_channel_len", "quarter"], ["cache_last_channel_len_next"]),
    ]
    caches = {"cache_last_channel": (1, 2, 3), "cache_last_time": (1, _COUNT, 1)}
    sizes = {f"{name}_dim{n}": f"{size}" for name, shape in caches.items() for n, size in enumerate(shape, start=1)}
    inputs = [_floats("audio_signal", "N", 80, _CHUNK), helper.make_tensor_value_info("length", T.INT64, ["N"])]
    outputs = [_floats(out, "N", *(("S", _COUNT) if out == "logprobs" else (_COUNT, "S"))),
               helper.make_tensor_value_info("encoded_lengths", T.INT64, ["N"])]  # fmt: skip
    for values, suffix in ((inputs, ""), (outputs, "_next")):
        values += [_floats(f"{name}{suffix}", "N", *shape) for name, shape in caches.items()]
        values.append(helper.make_tensor_value_info(f"cache_last_channel_len{suffix}", T.INT64, ["N"]))
    told = {"model_type": "EncDecHybridRNNTCTCBPEModel", "normalize_type": "NA", "window_size": f"{_CHUNK}",
            "chunk_shift": f"{_CHUNK}", **sizes, **_CLIP} | said  # fmt: skip
    _save(path, nodes, inputs, outputs, weights, told)


_CHUNK = 32
_COUNT = len(TOKENS)
_CLIP = {"vocab_size": f"{_COUNT - 1}", "subsampling_factor": "4"}


def _clip(out: str, source: str = "audio_signal", blank: int = -1) -> tuple[list[Any], list[Any], list[Any]]:
    """Features audio_signal [N, 80, frames] -> scores [N, frames / 4, tokens]; the blank is likeliest in silence."""
    weights = np.random.default_rng(1).normal(0, 1, (80, _COUNT))
    words, bias = np.ones(_COUNT), np.zeros(_COUNT)
    words[blank], bias[blank] = 0, 6
    values = {"weights": (weights - weights.mean(0)) * words, "bias": bias}
    nodes = [
        helper.make_node("AveragePool", [source], ["pooled"], kernel_shape=[4], strides=[4]),
        helper.make_node("Transpose", ["pooled"], ["frames"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["frames", "weights"], ["heard"]),
        helper.make_node("Add", ["heard", "bias"], [out]),
    ]
    inputs = [_floats("audio_signal", "N", 80, "frames"), helper.make_tensor_value_info("length", T.INT64, ["N"])]
    return nodes, inputs, [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]


def _floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, T.FLOAT, shape)


def _network(path: Path, out: str, said: dict[str, str]) -> None:
    """Features x [N, CHUNK, 80] -> scores [N, FRAMES / 4, tokens], moved by what was heard before."""
    drawn = np.random.default_rng(1)
    weights = drawn.normal(0, 1, (80, len(TOKENS)))
    weights = (weights - weights.mean(0)) * np.array([0] + [1.0] * (len(TOKENS) - 1))  # what is flat says nothing
    bias = np.array([6.0] + [0.0] * (len(TOKENS) - 1))
    values = {"weights": weights.astype(np.float32), "bias": bias.astype(np.float32), "half": np.float32(0.5)}
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in values.items()]
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "axis1"], ["frames"]),
        helper.make_node("Reshape", ["frames", "fours"], ["grouped"]),
        helper.make_node("ReduceMean", ["grouped", "axis2"], ["pooled"], keepdims=0),
        helper.make_node("MatMul", ["pooled", "weights"], ["heard"]),
        helper.make_node("Add", ["heard", "bias"], ["biased"]),
        helper.make_node("ReduceMean", ["conv1", "axis1"], ["before"], keepdims=1),
        helper.make_node("Mul", ["heard", "before"], ["moved"]),
        helper.make_node("Add", ["biased", "moved"], [out]),
        helper.make_node("ReduceMax", ["heard", "both"], ["loudest"], keepdims=1),
        helper.make_node("Sin", ["loudest"], ["mood"]),
        helper.make_node("Mul", ["mood", "half"], ["halved"]),
        helper.make_node("Expand", ["halved", "four"], ["new_conv1"]),
        *(helper.make_node("Identity", [name], [f"new_{name}"]) for name in STATES if name != "conv1"),
    ]
    inputs = [helper.make_tensor_value_info("x", T.FLOAT, ["N", CHUNK, 80])]
    inputs += [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in STATES.items()]
    outputs = [helper.make_tensor_value_info(out, T.FLOAT, ["N", FRAMES // 4, len(TOKENS)])]
    outputs += [helper.make_tensor_value_info(f"new_{name}", kind, shape) for name, (kind, shape) in STATES.items()]
    _save(path, nodes, inputs, outputs, constants, said)


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], values: list[Any], said: Any) -> None:
    integers = {"begin": [0], "end": [FRAMES], "axis1": [1], "axis2": [2], "both": [1, 2],
                "fours": [0, FRAMES // 4, 4, 80], "four": [1, 4, 1], "flat": [1, 1, 1, -1], "quarter": [4]}  # fmt: skip
    values = values + [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in integers.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {name: value for name, value in said.items() if value})
    onnx.save(model, path)


def _tokens(folder: Path, tokens: list[str] = TOKENS) -> Path:
    (folder / "tokens.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(tokens)), encoding="utf-8")
    return folder


def speech(seconds: float, seed: int) -> np.ndarray:
    """int16 at 16 kHz: some tones at a time, others every tenth of a second."""
    drawn = np.random.default_rng(seed)
    pieces: list[np.ndarray] = []
    for _ in range(round(seconds * 10)):
        hz = drawn.uniform(100, 7000, 4)[:, None]
        pieces.append(np.sin(2 * np.pi * hz * np.arange(1600) / 16_000).sum(0) * drawn.uniform(500, 5000))
    return np.concatenate(pieces).clip(-32000, 32000).astype(np.int16)
