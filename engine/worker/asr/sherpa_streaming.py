"""Streaming speech recognition models of sherpa-onnx: recognizes the model type from its files, and checks them.

Supports zipformers (transducers and CTC), Paraformer, and NeMo's cache-aware transducers and CTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import ConfigError, WeightsError
from engine.worker.asr.hotwords import Hotwords, hotwords_of
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
NEMO = "EncDec"
"""Prefix of NeMo's model types."""
WHOLE_CLIPS = (NEMO, "whisper", "sense_voice", "paraformer")
"""Prefixes of the model types that transcribe whole clips."""

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
_CACHES = ("cache_last_channel", "cache_last_time")
_NEMO = (
    "vocab_size",
    "window_size",
    "chunk_shift",
    "subsampling_factor",
    *(f"{cache}_dim{n}" for cache in _CACHES for n in (1, 2, 3)),
)
_PARAFORMER_TAIL_S = 1.3
"""Paraformer decodes 0.6 s at a time, and decodes the end of each chunk with the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SherpaEars(SherpaModel):
    """Speech recognition model that transcribes a stream."""

    recognizer = "OnlineRecognizer"
    tail_s: float
    """Seconds of silence that must follow the last word before the model decodes it."""
    hotwords: Hotwords | None = None
    """The form in which the model's streams take hotwords; None if they take no hotwords."""

    def stream(self, recognizer: Any, keywords: Sequence[str]) -> Any:
        """Return the library's stream for one user. ``keywords`` have no effect without ``hotwords``."""
        encoded = "" if self.hotwords is None else self.hotwords.encode(keywords)
        return recognizer.create_stream(hotwords=encoded) if encoded else recognizer.create_stream()


class _Networks(NamedTuple):
    """Networks of a folder, and how the library loads them."""

    files: Mapping[str, Path]
    """Network files, by the names of the factory's arguments."""
    factory: str
    tail_s: float
    tokens: int = 0
    """Number of tokens, or 0 if the metadata does not include it."""
    hotwords: bool = False
    """Whether its streams can take hotwords."""


def sherpa_ears(folder: Path | None, languages: Sequence[str] = (), hotwords_score: float = 0.0) -> SherpaEars:
    """Find the streaming model in a folder.

    Raises WeightsError for missing, damaged or unsupported files, ConfigError if the model takes no hotwords.
    """
    folder = weights_folder(folder, USE, "a speech recognition model of sherpa-onnx")
    networks = _networks(folder)
    tokens = tokens_of(folder, networks.tokens)
    arguments: dict[str, Any] = {name: str(path) for name, path in {**networks.files, "tokens": tokens}.items()}
    if networks.factory == "from_transducer":
        arguments["temperature_scale"] = 1.0  # makes each token's score its log-probability
    capitals = in_capitals(tokens)
    hotwords = None
    if hotwords_score:
        if not networks.hotwords:
            raise ConfigError(f"options.hotwords_score: only zipformer transducers take hotwords, not {folder}")
        hotwords = hotwords_of(tokens, capitals, hotwords_score)
        arguments.update(hotwords.arguments)
    return SherpaEars(
        folder=folder,
        factory=networks.factory,
        arguments=arguments,
        generated=hotwords.generated if hotwords else {},
        hotwords=hotwords,
        languages=languages_of(folder, languages),
        capitals=capitals,
        tail_s=networks.tail_s,
    )


def _networks(folder: Path) -> _Networks:
    encoder = network_of(folder, "encoder")
    parts = {"encoder": encoder} | {part: network_of(folder, part) for part in ("decoder", "joiner")}
    if encoder is None and not any(parts.values()):
        return _one_network(_only(folder))
    if encoder is not None and metadata_of(encoder).get("model_type") == "paraformer":
        return _paraformer(whole(folder, {"encoder": encoder, "decoder": parts["decoder"]}))
    if encoder is not None and _is_streaming_nemo(encoder):
        return _nemo(whole(folder, parts), "from_transducer", encoder, "pred_rnn_layers", "pred_hidden")
    if encoder is not None:
        _check_kind(encoder, "zipformer2")
        _check_streams(encoder)
    files = whole(folder, parts)
    count = int(needed_metadata(files["decoder"], ["vocab_size", "context_size"])["vocab_size"])
    return _Networks(files, "from_transducer", _zipformer_tail_s(files["encoder"]), count, hotwords=True)


def _one_network(model: Path) -> _Networks:
    if _is_streaming_nemo(model):
        return _nemo({"model": model}, "from_nemo_ctc", model)
    _check_kind(model, "zipformer2ctc")
    return _Networks({"model": model}, "from_zipformer2_ctc", _zipformer_tail_s(model))


def _only(folder: Path) -> Path:
    if (only := only_network_of(folder)) is None:
        raise WeightsError(
            f"The model folder {folder} has neither encoder, decoder and joiner networks nor a model.onnx."
        )
    return only


def _check_kind(hears: Path, wanted: str) -> None:
    """Raise WeightsError for a network of another model type. A network without a type passes."""
    if (kind := metadata_of(hears).get("model_type", wanted)) != wanted:
        hint = "; set use: asr.sherpa_offline" if kind.startswith(WHOLE_CLIPS) else ""
        raise WeightsError(f"{hears} has the model type {kind!r:.40}; {USE} needs {wanted} there{hint}.")


def _check_streams(encoder: Path) -> None:
    """Raise WeightsError for a zipformer that transcribes whole clips, which has no chunk length in its metadata."""
    metadata = metadata_of(encoder)
    if metadata.get("model_type") and not any(metadata.get(key) for key in ("T", "decode_chunk_len")):
        raise WeightsError(f"{encoder} transcribes whole clips; set use: asr.sherpa_offline.")


def _zipformer_tail_s(hears: Path) -> float:
    """Return the silence needed after the last word: one full chunk and a margin."""
    return FRAME_S * (int(needed_metadata(hears, ["T"], _ZIPFORMER, "a streaming model")["T"]) + 10)


def _is_streaming_nemo(network: Path) -> bool:
    """Return whether NeMo exported the network with its streaming caches."""
    metadata = metadata_of(network)
    return metadata.get("model_type", "").startswith(NEMO) and bool(metadata.get("chunk_shift"))


def _nemo(files: Mapping[str, Path], factory: str, hears: Path, *also: str) -> _Networks:
    metadata = needed_metadata(hears, (*_NEMO, *also), wanted="a streaming model of NeMo")
    tail_s = FRAME_S * (int(metadata["window_size"]) + int(metadata["chunk_shift"]))
    return _Networks(files, factory, tail_s, int(metadata["vocab_size"]))


def _paraformer(files: Mapping[str, Path]) -> _Networks:
    metadata = needed_metadata(files["encoder"], _PARAFORMER, ["neg_mean", "inv_stddev"])
    return _Networks(files, "from_paraformer", _PARAFORMER_TAIL_S, int(metadata["vocab_size"]))
