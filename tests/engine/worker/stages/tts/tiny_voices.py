"""Voices that sherpa-onnx loads, of a few nodes each: every token is a tone of its own, so that one hears the text.

The files are those of the voices that the project publishes: a network with metadata, tokens, a lexicon, styles.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

WORDS = "hello world this is a test of the voice one two three we go and come again today it very fine"
TOKENS = ["$", " ", ",", ".", "!", "?", ";", "'", *string.ascii_lowercase]
TOKEN_S = 0.02
PIECES = ["<unk>", "<s>", "</s>", "▁", *string.ascii_lowercase, *string.ascii_uppercase, *".,;:!?'",
          *(f"<0x{n:02X}>" for n in range(256))]  # fmt: skip
"""Of Pocket's tokenizer."""
STYLES, STYLE = 510, 4
KOKORO = "af_heart,bm_george,zf_xiaoxiao"


def lexicon(words: str = WORDS) -> str:
    return "".join(f"{word} {' '.join(word)}\n" for word in words.split())


def vits(folder: Path, rate_hz: int = 22_050, speakers: int = 3, **metadata: str) -> Path:
    """A VITS with numbered speakers."""
    scales = ["noise_scale", "length_scale", "noise_scale_w"]
    tones = [_node("Cast", "sid", to=T.FLOAT, out="shift"), *_tones("x", "length_scale", rate_hz)]
    inputs = [_ints("x", 1, "L"), _ints("x_length", 1), *(_floats(name, 1) for name in scales), _ints("sid", 1)]
    said = {"model_type": "vits", "comment": "tiny", "language": "English", "sample_rate": f"{rate_hz}",
            "n_speakers": f"{speakers}", "punctuation": ", . ! ? ;"}  # fmt: skip
    _files(folder, "lexicon.txt")
    return _save(folder / "model.onnx", tones, inputs, said | metadata)


def kokoro(
    folder: Path, names: str = "af_heart,bm_george,zf_xiaoxiao", family: str = "kokoro", **metadata: str
) -> Path:
    """Kokoro, or Kitten, whose styles differ in shape: voices with names, at 24 kHz."""
    count = len(names.split(","))
    shape = (STYLES, 1, STYLE) if family == "kokoro" else (1, STYLE)
    style = np.repeat(np.arange(count, dtype=np.float32), int(np.prod(shape)))
    tones = [_node("ReduceMean", "style", "last", keepdims=0, out="shift"), _node("Reciprocal", "speed", out="slow"),
             *_tones("tokens", "slow", 24_000)]  # fmt: skip
    inputs = [_ints("tokens", 1, "L"), _floats("style", 1, STYLE), _floats("speed", 1)]
    said = {"model_type": "kokoro" if family == "kokoro" else "kitten-tts", "language": "English", "has_espeak": "1",
            "sample_rate": "24000", "version": "2", "voice": "en-us", "style_dim": ",".join(map(str, shape)),
            "n_speakers": f"{count}", "speaker_names": names}  # fmt: skip
    _files(folder, "lexicon-us-en.txt")
    style.tofile(folder / "voices.bin")
    return _save(folder / "model.onnx", tones, inputs, said | metadata)


def matcha(folder: Path, **metadata: str) -> Path:
    """Matcha: what it gives is made into sound by a vocoder."""
    tones = [_node("Cast", "sid", to=T.FLOAT, out="shift"), *_tones("x", "length_scale", 22_050)]
    tones[-1] = _node("Transpose", "loud", perm=[0, 2, 1], out="y")
    inputs = [_ints("x", 1, "L"), _ints("x_length", 1), _floats("noise_scale", 1), _floats("length_scale", 1),
              _ints("sid", 1)]  # fmt: skip
    said = {"model_type": "matcha-tts", "language": "English", "sample_rate": "22050", "n_speakers": "1",
            "use_eos_bos": "0", "pad_id": "0", "has_espeak": "0", "jieba": "0"}  # fmt: skip
    _files(folder, "lexicon.txt")
    _save(folder / "model-steps-3.onnx", tones, inputs, said | metadata)
    sound = [_node("Transpose", "mel", perm=[0, 2, 1], out="rows"), _node("Reshape", "rows", "flat", out="y")]
    return _save(folder / "vocoder.onnx", sound, [_floats("mel", 1, "C", "T")], {"model_type": "hifigan"})


LOUDNESS = {"volume": 0.3, "quiet": 0.005, "four": 4.0}
BINS = 16
"""Of ZipVoice's spectrum."""
TOKEN_FRAMES = 16


def zipvoice(folder: Path, rate_hz: int = 24_000, **metadata: str) -> Path:
    """ZipVoice, which speaks as a recording does: of each token some frames of its number, louder as that is."""
    speaker = [_node("ReduceMean", "speech", out="how", keepdims=1), _node("Add", "text", "how", out="target")]
    flow = [_node("Sub", "target", "x", out="far"), _node("Cast", "one", to=T.FLOAT, out="whole"),
            _node("Sub", "whole", "t", out="left"), _node("Div", "far", "left", out="y")]  # fmt: skip
    wide = ("text", "speech")
    inputs = [_floats("t", 1), _floats("x", 1, "T", BINS), *(_floats(name, 1, "T", BINS) for name in wide),
              _floats("guidance", 1)]  # fmt: skip
    said = {"model_type": "zipvoice", "version": "1", "feat_dim": f"{BINS}", "num_mels": f"{BINS}", "n_fft": "1024",
            "sample_rate": f"{rate_hz}", "hop_length": "256", "window_length": "1024"}  # fmt: skip
    _files(folder, "lexicon.txt")
    _save(folder / "decoder.int8.onnx", [*speaker, *flow], inputs, said | metadata)
    _save(folder / "encoder.int8.onnx", _frames(), [_ints("tokens", 1, "N"), _ints("prompt", 1, "M"),
          _ints("length", 1), _floats("speed", 1)], {"use_espeak": "0"})  # fmt: skip
    sound = [_node("Abs", "mel", out="loud"), _node("Mul", "loud", "quiet", out="magnitude"),
             _node("Sub", "mel", "mel", out="imaginary"), _node("Add", "imaginary", "turns", out="real")]  # fmt: skip
    said = {"model_type": "vocos", "sample_rate": f"{rate_hz}", "n_fft": f"{2 * BINS - 2}", "hop_length": f"{BINS - 1}",
            "win_length": f"{2 * BINS - 2}", "center": "1", "normalized": "0", "window_type": "hann"}  # fmt: skip
    inputs = [_floats("mel", 1, BINS, "T")]
    return _save(folder / "vocos_24khz.onnx", sound, inputs, said, ("magnitude", "real", "imaginary"))


def _frames() -> list[onnx.NodeProto]:
    """``y`` [1, length + N * TOKEN_FRAMES, BINS]: nothing for the recording, then each token's frames."""
    return [
        _node("Cast", "tokens", to=T.FLOAT, out="number"),
        _node("Unsqueeze", "number", "axis2", out="column"),
        _node("Tile", "column", "often", out="several"),
        _node("Reshape", "several", "rows_of_one", out="said"),
        _node("Concat", "one_1d", "length", "one_1d", out="shape", axis=0),
        _node("ConstantOfShape", "shape", out="before"),
        _node("Concat", "before", "said", out="all", axis=1),
        _node("Tile", "all", "bins", out="y"),
    ]


LATENT, WIDTH, FRAME = 32, 1024, 1920


def pocket(folder: Path) -> Path:
    """Pocket, which speaks as a recording does: as many frames as letters, each as loud as these and the recording."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(PIECES)}))
    (folder / "token_scores.json").write_text(json.dumps(dict.fromkeys(PIECES, 0.0)))
    heard = [_node("Abs", "audio", out="loud"), _node("ReduceMean", "loud", "axis2", out="mean"),
             _node("Tile", "mean", "widths", out="y")]  # fmt: skip
    _save(folder / "encoder.onnx", heard, [_floats("audio", 1, 1, "N")], {})
    read = [_node("Cast", "ids", to=T.FLOAT, out="number"), _node("Unsqueeze", "number", "axis2", out="column"),
            _node("Tile", "column", "widths", out="y")]  # fmt: skip
    _save(folder / "text_conditioner.onnx", read, [_ints("ids", 1, "N")], {})
    flow = [_node("Cast", "one", to=T.FLOAT, out="whole"), _node("Sub", "whole", "s", out="left"),
            _node("Sub", "c", "x", out="far"), _node("Div", "far", "left", out="y")]  # fmt: skip
    inputs = [_floats("c", 1, LATENT), _floats("s", 1, 1), _floats("t", 1, 1), _floats("x", 1, LATENT)]
    _save(folder / "lm_flow.int8.onnx", flow, inputs, {})
    _language_model(folder / "lm_main.int8.onnx")
    sound = [_node("ReduceMean", "latent", "axis2", out="mean"), _node("Tile", "mean", "frame", out="long"),
             _node("Reshape", "long", "flat", out="y"), _node("Identity", "state", out="next")]  # fmt: skip
    latent = [_floats("latent", 1, "T", LATENT), _floats("state", 1)]
    return _save(folder / "decoder.int8.onnx", sound, latent, {}, ("y", "next"))


def _language_model(path: Path) -> None:
    """How much it was told, and how long it may speak, are its state: ``told``, ``frames``, ``letters``."""
    nodes = [
        _node("ReduceSum", "told_now", "axis12", keepdims=0, out="sum"),
        _node("Mul", "sum", "quiet", out="some"),
        _node("Add", "told", "some", out="told_next"),
        _node("Shape", "seq", start=1, end=2, out="steps"),
        _node("Cast", "steps", to=T.FLOAT, out="step"),
        _node("Add", "frames", "step", out="frames_next"),
        _node("Shape", "told_now", start=1, end=2, out="words"),
        _node("Cast", "words", to=T.FLOAT, out="word"),
        _node("Add", "letters", "word", out="letters_next"),
        _node("Sub", "frames_next", "letters_next", out="late"),
        _node("Sub", "late", "four", out="eos"),
        _node("Sin", "told_next", out="voice"),
        _node("Reshape", "voice", "row", out="one_row"),
        _node("Tile", "one_row", "latents", out="y"),
    ]
    inputs = [_floats("seq", 1, "S", LATENT), _floats("told_now", 1, "E", WIDTH)]
    states = [_floats(name, 1) for name in ("told", "frames", "letters")]
    _save(path, nodes, [*inputs, *states], {}, ("y", "eos", "told_next", "frames_next", "letters_next"))


def _tones(tokens: str, slowness: str, rate_hz: int) -> list[onnx.NodeProto]:
    """Of each token in ``tokens`` [1, L] a tone of TOKEN_S, so many times longer: ``y`` [1, 1, samples].

    ``shift`` (a scalar or [1]) makes all of them higher: who speaks.
    """
    hop = numpy_helper.from_array(np.array([rate_hz * TOKEN_S], np.float32), "value")
    step = numpy_helper.from_array(np.array(2 * np.pi * 40 / rate_hz, np.float32), "value")
    return [
        helper.make_node("Constant", [], ["hop"], value=hop),
        helper.make_node("Constant", [], ["radians"], value=step),
        _node("Mul", slowness, "hop", out="length"),
        _node("Cast", "length", to=T.INT64, out="samples"),
        _node("Squeeze", "samples", "axis0", out="end"),
        _node("Range", "zero", "end", "one", out="range"),
        _node("Cast", "range", to=T.FLOAT, out="time"),
        _node("Cast", tokens, to=T.FLOAT, out="number"),
        _node("Unsqueeze", "number", "axis2", out="column"),
        _node("Add", "column", "shift", out="pitch"),
        _node("Mul", "pitch", "radians", out="turn"),
        _node("Mul", "turn", "time", out="phase"),
        _node("Sin", "phase", out="sine"),
        _node("Mul", "sine", "volume", out="loud"),
        _node("Reshape", "loud", "flat", out="y"),
    ]


def _node(kind: str, *inputs: str, out: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [out], **attributes)


def _ints(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, T.INT64, shape)


def _floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, T.FLOAT, shape)


def _files(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokens.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(TOKENS)))
    (folder / name).write_text(lexicon())


def _save(
    path: Path, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], said: dict[str, str],
    outputs: tuple[str, ...] = ("y",),
) -> Path:  # fmt: skip
    constants: dict[str, Any] = {
        "zero": 0,
        "one": 1,
        "axis0": [0],
        "axis2": [2],
        "last": [1],
        "flat": [1, 1, -1],
        "often": [1, 1, TOKEN_FRAMES],
        "rows_of_one": [1, -1, 1],
        "one_1d": [1],
        "bins": [1, 1, BINS],
        "widths": [1, 1, WIDTH],
        "axis12": [1, 2],
        "row": [1, 1],
        "latents": [1, LATENT],
        "frame": [1, 1, FRAME],
    }
    values = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    turns = np.cos(np.pi * np.arange(BINS, dtype=np.float32)).reshape(1, -1, 1)  # all in the middle of a window
    values.append(numpy_helper.from_array(turns, "turns"))
    values += [numpy_helper.from_array(np.array(loud, np.float32), name) for name, loud in LOUDNESS.items()]
    given = [helper.make_tensor_value_info(name, T.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "tiny", inputs, given, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {name: value for name, value in said.items() if value})
    onnx.save(model, path)
    return path.parent
