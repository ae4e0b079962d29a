"""Streaming ears of sherpa-onnx as they lie in a folder: which model they are, their files, their languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import WeightsError
from engine.worker.asr.sherpa_model_files import (
    in_capitals,
    languages_of,
    needed_metadata,
    network_of,
    only_network_of,
    tokens_of,
    whole,
)
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.libraries.sherpa import SherpaModel
from engine.worker.libraries.weights_folder import weights_folder

USE = "asr.sherpa"
FRAME_S = 0.01
WHOLE_CLIPS = ("EncDec", "whisper", "sense_voice", "paraformer")
"""Beginnings of the kinds that hear whole clips."""

_ZIPFORMER = (
    "encoder_dims",
    "query_head_dims",
    "value_head_dims",
    "num_heads",
    "num_encoder_layers",
    "cnn_module_kernels",
    "left_context_len",
    "decode_chunk_len",
)
_PARAFORMER = (
    "vocab_size",
    "lfr_window_size",
    "lfr_window_shift",
    "encoder_output_size",
    "decoder_num_blocks",
    "decoder_kernel_size",
)
_PARAFORMER_TAIL_S = 1.3
"""It looks at 0.6 s at a time, and takes the end of each with the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SherpaEars(SherpaModel):
    """A model that transcribes a stream."""

    recognizer = "OnlineRecognizer"
    tail_s: float
    """Seconds of silence that must follow the last word, so that the model looks at it."""


def sherpa_ears(folder: Path | None, languages: Sequence[str] = ()) -> SherpaEars:
    """The speech model in a folder. Raises WeightsError where something is missing."""
    folder = weights_folder(folder, USE, "a speech recognition model of sherpa-onnx")
    encoder = network_of(folder, "encoder")
    parts = {part: network_of(folder, part) for part in ("decoder", "joiner")}
    if encoder is not None and metadata_of(encoder).get("model_type") == "paraformer":
        networks = whole(folder, {"encoder": encoder, "decoder": parts["decoder"]})
        factory, tail_s, count = _paraformer(networks["encoder"])
    elif encoder is not None or any(parts.values()):
        if encoder is not None:
            _check_kind(encoder, "zipformer2")
            _check_streams(encoder)
        networks = whole(folder, {"encoder": encoder, **parts})
        factory, tail_s = "from_transducer", _zipformer_tail_s(networks["encoder"])
        count = int(needed_metadata(networks["decoder"], ["vocab_size", "context_size"])["vocab_size"])
    else:
        networks = {"model": _only(folder)}
        _check_kind(networks["model"], "zipformer2ctc")
        factory, tail_s, count = "from_zipformer2_ctc", _zipformer_tail_s(networks["model"]), 0
    tokens = tokens_of(folder, count)
    known = languages_of(folder, languages)
    arguments: dict[str, Any] = {name: str(path) for name, path in (networks | {"tokens": tokens}).items()}
    if factory == "from_transducer":
        arguments["temperature_scale"] = 1.0  # otherwise a token's score is not the logarithm of its probability
    return SherpaEars(
        folder=folder,
        factory=factory,
        arguments=arguments,
        languages=known,
        capitals=in_capitals(tokens),
        tail_s=tail_s,
    )


def _only(folder: Path) -> Path:
    if (only := only_network_of(folder)) is None:
        raise WeightsError(f"The model folder {folder} has no encoder, decoder and joiner, nor a model.onnx.")
    return only


def _check_kind(hears: Path, wanted: str) -> None:
    """Raises WeightsError for a network of another kind; one that says none is looked at further."""
    if (kind := metadata_of(hears).get("model_type", wanted)) != wanted:
        hint = "; set use: asr.sherpa_offline" if kind.startswith(WHOLE_CLIPS) else ""
        raise WeightsError(f"{hears} has the model type {kind!r:.40}; {USE} needs {wanted} there{hint}.")


def _check_streams(encoder: Path) -> None:
    """Raises WeightsError for a zipformer that hears whole clips: it says nothing of the frames that it looks at."""
    metadata = metadata_of(encoder)
    if metadata.get("model_type") and not any(metadata.get(key) for key in ("T", "decode_chunk_len")):
        raise WeightsError(f"{encoder} transcribes whole clips; set use: asr.sherpa_offline.")


def _zipformer_tail_s(hears: Path) -> float:
    """Return the silence behind the last word: there has to be a whole chunk."""
    return FRAME_S * (int(needed_metadata(hears, ["T"], _ZIPFORMER, "a streaming model")["T"]) + 10)


def _paraformer(encoder: Path) -> tuple[str, float, int]:
    """Its factory, its tail, and how many tokens it has."""
    metadata = needed_metadata(encoder, _PARAFORMER, ["neg_mean", "inv_stddev"])
    return "from_paraformer", _PARAFORMER_TAIL_S, int(metadata["vocab_size"])
