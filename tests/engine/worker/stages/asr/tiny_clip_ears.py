"""Ears of whole clips that sherpa-onnx loads, of a few nodes: Whisper, Moonshine, SenseVoice, Paraformer, Qwen3-ASR.

Each hears tokens drawn at random from the sound, more of them the longer it lasts, and nothing in silence. The names of
the files, of what goes in and out, and the metadata are those of the published ones.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

WORDS = [" hello", " wor", "ld", " it", " is", " a", " fine", " da", "y", "s", " one"]
"""As Whisper and Moonshine write them; a word is a number of an eleventh of what is heard."""
COUNT = len(WORDS)


def whisper(folder: Path, **told: str) -> Path:
    """As tiny.en: the first tokens are words, then come the marks. It tells a token for each 25 steps of its mel."""
    folder.mkdir(parents=True, exist_ok=True)
    eot, count = COUNT, COUNT + 8
    marks = {"sot": eot + 1, "eot": eot, "translate": eot + 2, "transcribe": eot + 3, "no_timestamps": eot + 4,
             "no_speech": eot + 5, "n_text_state": count, "n_vocab": count}  # fmt: skip
    metadata = {
        "model_type": "whisper-tiny", "n_mels": "80", "n_text_layer": "1", "n_text_ctx": "64", "blank_id": "0",
        "is_multilingual": "1", "sot_sequence": f"{eot + 1},{eot + 6},{eot + 3}",
        "all_language_tokens": f"{eot + 6},{eot + 7}", "all_language_codes": "en,de",
    } | {name: f"{number}" for name, number in marks.items()}  # fmt: skip
    nodes = [
        _node("AveragePool", ["mel"], "pooled", kernel_shape=[25], strides=[25]),
        _node("Transpose", ["pooled"], "steps", perm=[0, 2, 1]),  # [1, S, 80]
        *_scores("steps", "scores"),
        _node("Unsqueeze", ["scores", "axis0"], "n_layer_cross_k"),  # [1, 1, S, count]
        _node("Identity", ["n_layer_cross_k"], "n_layer_cross_v"),
    ]
    # Its mel is 0 where nothing follows, and where it is flat after the library has scaled it.
    values = _drawn(80, COUNT, count) | {"bias": _bias(count, eot, 0.35)}
    cross = [_floats(f"n_layer_cross_{one}", 1, 1, "S", count) for one in "kv"]
    _save(folder / "tiny-encoder.onnx", nodes, [_floats("mel", 1, 80, "frames")], cross, values, metadata | told)
    nodes = [
        _node("Shape", ["tokens"], "shape"),
        _node("Gather", ["shape", "one_"], "said"),  # how many tokens came at once
        _node("Max", ["offset", "three"], "from"),
        _node("Sub", ["from", "three"], "place"),  # the marks before the first word are four
        _node("Gather", ["n_layer_cross_k", "place"], "there", axis=2),  # [1, 1, 1, count]
        _node("Squeeze", ["there", "axis0"], "row"),
        _node("Concat", ["one_", "said", "one_"], "to", axis=0),
        _node("Expand", ["row", "to"], "logits"),
        *(_node("Identity", [f"in_n_layer_self_{one}_cache"], f"out_n_layer_self_{one}_cache") for one in "kv"),
    ]
    caches = [_floats(f"in_n_layer_self_{one}_cache", 1, "N", 64, count) for one in "kv"]
    inputs = [_ints("tokens", "N", "L"), *caches, *cross, _ints("offset", 1)]
    outputs = [_floats("logits", "N", "L", count)]
    outputs += [_floats(f"out_n_layer_self_{one}_cache", 1, "N", 64, count) for one in "kv"]
    _save(folder / "tiny-decoder.onnx", nodes, inputs, outputs, {"three": np.array([3], np.int64)}, {})
    (folder / "tiny-encoder.ort").write_bytes(b"as published beside it")
    lines = [f"{base64.b64encode(word.encode()).decode()} {n}\n" for n, word in enumerate(WORDS)]
    (folder / "tiny-tokens.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def moonshine(folder: Path) -> Path:
    """Four networks, as of 2024: token 1 begins, 2 ends."""
    folder.mkdir(parents=True, exist_ok=True)
    count = COUNT + 3
    nodes = [*_frames("args_0", 1600), *_scores("frames", "features")]
    _save(folder / "preprocess.onnx", nodes, [_floats("args_0", 1, "samples")], [_floats("features", 1, "S", count)],
          _drawn(64, COUNT, count, first=3) | {"bias": _bias(count, 2, 0.02)}, {})  # fmt: skip
    _save(folder / "encode.int8.onnx", [_node("Identity", ["args_0"], "out")],
          [_floats("args_0", 1, "S", count), helper.make_tensor_value_info("args_1", T.INT32, [1])],
          [_floats("out", 1, "S", count)], {}, {})  # fmt: skip
    for name, states in (("uncached", 0), ("cached", 1)):
        nodes = [
            _node("Cast", ["args_2"], "length", to=T.INT64),
            _node("Sub", ["length", "one_"], "place"),
            _node("Gather", ["args_1", "place"], "logits", axis=1),
            _node("Identity", ["args_1" if not states else "args_3"], "state"),
        ]
        inputs = [helper.make_tensor_value_info("args_0", T.INT32, [1, 1]), _floats("args_1", 1, "S", count),
                  helper.make_tensor_value_info("args_2", T.INT32, [1]),
                  *[_floats("args_3", 1, "S", count)] * states]  # fmt: skip
        outputs = [_floats("logits", 1, 1, count), _floats("state", 1, "S", count)]
        _save(folder / f"{name}_decode.int8.onnx", nodes, inputs, outputs, {}, {})
    return _tokens(folder, ["<unk>", "<s>", "</s>", *(word.replace(" ", "▁") for word in WORDS)])


def merged_moonshine(folder: Path) -> Path:
    """Two networks in ONNX Runtime's own format, as of 2026. Its decoder counts by the length of its cache."""
    folder.mkdir(parents=True, exist_ok=True)
    count = COUNT + 3
    nodes = [*_frames("input_values", 1600), *_scores("frames", "last_hidden_state")]
    _save(folder / "encoder_model.onnx", nodes, [_floats("input_values", 1, "samples")],
          [_floats("last_hidden_state", 1, "S", count)],
          _drawn(64, COUNT, count, first=3) | {"bias": _bias(count, 2, 0.02)}, {})  # fmt: skip
    names = [f"{part}.{one}" for part in ("decoder", "encoder") for one in ("key", "value")]
    nodes = [
        _node("Shape", ["past_key_values.0.decoder.key"], "shape"),
        _node("Gather", ["shape", "two"], "place"),
        _node("Gather", ["encoder_hidden_states", "place"], "logits", axis=1),
        *(_node("Concat", [f"past_key_values.0.{name}", "nothing"], f"present.0.{name}", axis=2) for name in names[:2]),
        *(_node("Identity", ["twice"], f"present.0.{name}") for name in names[2:]),
    ]
    inputs = [_ints("input_ids", 1, 1), _floats("encoder_hidden_states", 1, "S", count),
              *(_floats(f"past_key_values.0.{name}", 1, 1, f"past_{name}", 1) for name in names),
              helper.make_tensor_value_info("use_cache_branch", T.BOOL, [1])]  # fmt: skip
    outputs = [_floats("logits", 1, 1, count), *(_floats(f"present.0.{name}", 1, 1, "P", 1) for name in names)]
    values = {"two": np.array([2], np.int64), "nothing": np.zeros((1, 1, 1, 1), np.float32),
              "twice": np.zeros((1, 1, 2, 1), np.float32)}  # fmt: skip
    _save(folder / "decoder_model_merged.onnx", nodes, inputs, outputs, values, {})
    for path in [*folder.glob("*.onnx")]:
        settings = ort.SessionOptions()
        settings.optimized_model_filepath = str(path.with_suffix(".ort"))
        settings.add_session_config_entry("session.save_model_format", "ORT")
        settings.log_severity_level = 3
        ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        path.unlink()
    written = ["<unk>", "<s>", "</s>", *WORDS]
    lines = [f"{base64.b64encode(word.encode()).decode()} {n}\n" for n, word in enumerate(written)]
    (folder / "tokens.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def sense_voice(folder: Path, **told: str) -> Path:
    """A CTC of frames of 60 ms; its first four tokens tell the language, the mood, the event and the writing."""
    folder.mkdir(parents=True, exist_ok=True)
    count = COUNT + 5
    metadata = {
        "model_type": "sense_voice_ctc", "vocab_size": f"{count}", "normalize_samples": "0", "with_itn": "14",
        "without_itn": "15", "lang_auto": "0", "lang_zh": "3", "lang_en": "4", "lang_ja": "11", "lang_ko": "12",
        "lang_yue": "13", **_low_frame_rate(),
    }  # fmt: skip
    nodes = [
        *_scores("x", "heard"),
        _node("Shape", ["x"], "shape"),
        _node("Gather", ["shape", "zero_"], "many"),
        _node("Concat", ["many", "one_", "one_"], "to", axis=0),
        _node("Expand", ["marks", "to"], "first"),
        _node("Concat", ["first", "heard"], "logits", axis=1),
    ]
    marks = np.zeros((1, 4, count), np.float32)
    marks[0, range(4), range(COUNT + 1, COUNT + 5)] = 9
    values = _drawn(560, COUNT, count, first=1) | {"bias": _bias(count, 0, 1.0), "marks": marks}
    lengths = [helper.make_tensor_value_info(name, T.INT32, ["N"]) for name in ("x_length", "language", "text_norm")]
    _save(folder / "model.int8.onnx", nodes, [_floats("x", "N", "S", 560), *lengths],
          [_floats("logits", "N", "S4", count)], values, metadata | told)  # fmt: skip
    marks_ = ["<|en|>", "<|NEUTRAL|>", "<|Speech|>", "<|withitn|>"]
    return _tokens(folder, ["<unk>", *(word.replace(" ", "▁") for word in WORDS), *marks_])


def paraformer(folder: Path, **told: str) -> Path:
    """Frames of 60 ms, each a token; ``</s>`` ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    count = COUNT + 2
    metadata = {"model_type": "paraformer", "vocab_size": f"{count}", **_low_frame_rate()}
    nodes = [
        *_scores("speech", "logits"),
        _node("Cast", ["speech_lengths"], "token_num", to=T.INT64),
        _node("ReduceSum", ["speech", "axis2"], "flat", keepdims=0),
        _node("Mul", ["flat", "zero"], "us_alphas"),
        _node("Unsqueeze", ["us_alphas", "axis2"], "thin"),
        _node("Concat", ["thin", "thin", "thin"], "thrice", axis=2),
        _node("Add", ["thrice", "peak"], "peaks"),
        _node("Reshape", ["peaks", "flat_"], "peaks_"),
        _node("Concat", ["peaks_", "last"], "us_cif_peak", axis=1),  # where each token is, and where all of them end
    ]
    values = _drawn(560, COUNT, count, first=1) | {
        "bias": _bias(count, count - 1, 0.01), "zero": np.float32(0), "peak": np.array([1, 0, 0], np.float32),
        "last": np.ones((1, 1), np.float32), "flat_": np.array([1, -1], np.int64),
    }  # fmt: skip
    inputs = [_floats("speech", "N", "S", 560), helper.make_tensor_value_info("speech_lengths", T.INT32, ["N"])]
    outputs = [_floats("logits", "N", "S", count), _ints("token_num", "N"), _floats("us_alphas", "N", "S"),
               _floats("us_cif_peak", 1, "P")]  # fmt: skip
    _save(folder / "model.int8.onnx", nodes, inputs, outputs, values, metadata | told)
    return _tokens(folder, ["<blank>", *CHARACTERS, "</s>"])


CHARACTERS = ["你", "好", "今", "天", "hel@@", "lo", "是", "world", "天", "气", "一"]
"""As Paraformer writes them: ``@@`` where a word goes on."""


PROMPT = 31
"""Tokens that the library says before and behind the sound."""


def qwen3(folder: Path) -> Path:
    """A mel of 128, two networks of it, a decoder with a cache, and a tokenizer in two files."""
    folder.mkdir(parents=True, exist_ok=True)
    marks = ["<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>", "<asr_text>",
             "<|endoftext|>"]  # fmt: skip
    vocabulary = {chr(code): n for n, code in enumerate([*range(33, 127), *range(161, 173), *range(174, 256),
                                                          *range(256, 324)])}  # fmt: skip
    first = len(vocabulary)
    words = ["Ġhe", "llo", "Ġwor", "ld", "ly", "Ġit", "'s", "er"]  # eight tokens a second, which are four words
    vocabulary |= {word: first + n for n, word in enumerate(words)}
    vocabulary |= {mark: len(vocabulary) + n for n, mark in enumerate(marks)}
    count, eos = len(vocabulary), vocabulary["<|im_end|>"]
    nodes = [
        _node("Transpose", ["input_features"], "wide", perm=[0, 2, 1]),
        _node("AveragePool", ["wide"], "pooled", kernel_shape=[8], strides=[8]),
        _node("Transpose", ["pooled"], "conv_output", perm=[0, 2, 1]),
    ]
    _save(folder / "conv_frontend.onnx", nodes, [_floats("input_features", 1, "frames", 128)],
          [_floats("conv_output", 1, "S", 128)], {}, {})  # fmt: skip
    nodes = _scores("conv_output", "audio_features")
    mask = helper.make_tensor_value_info("feature_attention_mask", T.BOOL, [1, "S"])
    values = _drawn(128, len(words), count, first=first) | {"bias": _bias(count, eos, 0.6)}
    _save(folder / "encoder.int8.onnx", nodes, [_floats("conv_output", 1, "S", 128), mask],
          [_floats("audio_features", 1, "S", count)], values, {})  # fmt: skip
    # Each place behind the prompt tells a row of what was heard; behind the last of them it is over.
    nodes = [
        _node("Shape", ["audio_features"], "shape"),
        _node("Gather", ["shape", "one_"], "rows_"),
        _node("Add", ["rows_", "prompt"], "first"),
        _node("Sub", ["cache_position", "first"], "behind"),
        _node("Clip", ["behind", "zero", "most"], "at_least"),
        _node("Min", ["at_least", "rows_"], "place"),
        _node("Concat", ["audio_features", "over"], "answers", axis=1),
        _node("Gather", ["answers", "place"], "logits", axis=1),
        _node("Shape", ["cache_position"], "said"),
        _node("Concat", ["one_", "said", "one_", "one_"], "kv", axis=0),
        _node("Expand", ["nothing", "kv"], "present_key_0"),
        _node("Expand", ["nothing", "kv"], "present_value_0"),
    ]
    inputs = [_ints("input_ids", 1, "L"), _floats("audio_features", 1, "A", count), _ints("attention_mask", 1, "L"),
              _ints("cache_position", "L"), _floats("past_key_0", 1, 512, 1, 1), _floats("past_value_0", 1, 512, 1, 1),
              ]  # fmt: skip
    outputs = [_floats("logits", 1, "L", count), _floats("present_key_0", 1, "L", 1, 1),
               _floats("present_value_0", 1, "L", 1, 1)]  # fmt: skip
    numbers = {"prompt": [PROMPT - 1], "zero": 0, "most": 511}
    values = {name: np.array(number, np.int64) for name, number in numbers.items()}
    values |= {"over": _bias(count, eos, 1)[None, None], "nothing": np.zeros((1, 1, 1, 1), np.float32)}
    _save(folder / "decoder.int8.onnx", nodes, inputs, outputs, values, {})
    (folder / "tokenizer").mkdir(exist_ok=True)
    (folder / "tokenizer" / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer" / "merges.txt").write_text("#version: 0.2\nĠ h\n", encoding="utf-8")
    return folder


def _node(kind: str, inputs: list[str], output: str, **settings: Any) -> Any:
    return helper.make_node(kind, inputs, [output], **settings)


def _scores(source: str, target: str) -> list[Any]:
    return [_node("MatMul", [source, "weights"], f"{target}_"), _node("Add", [f"{target}_", "bias"], target)]


def _frames(source: str, samples: int) -> list[Any]:
    """A sound [1, samples] as rows of 64 loudnesses; what is left of the last is left out."""
    return [
        _node("Unsqueeze", [source, "axis1"], "line"),
        _node("Abs", ["line"], "loud"),
        _node("AveragePool", ["loud"], "loudness", kernel_shape=[samples // 64], strides=[samples // 64]),
        _node("Squeeze", ["loudness", "axis1"], "flat"),
        _node("Shape", ["flat"], "lengths"),
        _node("Gather", ["lengths", "one_"], "length_"),
        _node("Div", ["length_", "sixty_four"], "whole_"),
        _node("Mul", ["whole_", "sixty_four"], "end"),
        _node("Slice", ["flat", "zero_", "end", "axis1"], "even"),
        _node("Reshape", ["even", "rows"], "frames"),
    ]


def _drawn(features: int, words: int, count: int, first: int = 0) -> dict[str, np.ndarray]:
    """Weights that tell words of what differs between features; what is flat says nothing."""
    weights = np.random.default_rng(1).normal(0, 1, (features, words))
    wide = np.zeros((features, count), np.float32)
    wide[:, first : first + words] = weights - weights.mean(0)
    return {"weights": wide}


def _bias(count: int, silent: int, most: float) -> np.ndarray:
    """The token that says nothing is told where no word is likelier; those that are no words never."""
    bias = np.zeros(count, np.float32)
    bias[silent] = most
    return bias


def _low_frame_rate() -> dict[str, str]:
    return {"lfr_window_size": "7", "lfr_window_shift": "6", "neg_mean": ",".join(["-8"] * 560),
            "inv_stddev": ",".join(["0.2"] * 560)}  # fmt: skip


def _floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, T.FLOAT, shape)


def _ints(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, T.INT64, shape)


def _save(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], values: Any, told: dict[str, str]
) -> None:
    integers = {
        "zero_": [0],
        "one_": [1],
        "axis0": [0],
        "axis1": [1],
        "axis2": [2],
        "sixty_four": [64],
        "rows": [1, -1, 64],
    }
    every = values | {name: np.array(value, np.int64) for name, value in integers.items()}
    used = {name for node in nodes for name in node.input}
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in every.items() if name in used]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {name: value for name, value in told.items() if value})
    onnx.save(model, path)


def _tokens(folder: Path, tokens: list[str]) -> Path:
    (folder / "tokens.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(tokens)), encoding="utf-8")
    return folder
