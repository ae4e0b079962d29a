"""Dimensions of a Moshi checkpoint, from its configuration in Kyutai's format or in that of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from engine.errors import WeightsError

KYUTAI: dict[str, Any] = {
    "dim": 4096,
    "text_card": 32_000,
    "text_card_out": None,
    "n_q": 16,
    "dep_q": 8,
    "card": 2048,
    "num_heads": 32,
    "num_layers": 32,
    "hidden_scale": 4.125,
    "kv_repeat": 1,
    "context": 3000,
    "max_period": 10_000,
    "depformer_dim": 1024,
    "depformer_dim_feedforward": 4224,
    "depformer_num_heads": 16,
    "depformer_num_layers": 6,
    "depformer_weights_per_step_schedule": None,
    "delays": (0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1),
}
"""Fields of Kyutai's configuration, with the values of Moshi 7B for omitted ones. Source: loaders.py of moshi."""
REQUIRED: dict[str, Any] = {
    "causal": True,
    "layer_scale": None,
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "depformer_layer_scale": None,
    "depformer_gating": "silu",
    "depformer_pos_emb": "none",
    "depformer_multi_linear": True,
    "depformer_weights_per_step": True,
    "depformer_norm": None,
    "depformer_low_rank_embeddings": None,
    "norm_emb": False,
    "bias_proj": False,
    "cross_attention": False,
    "demux_second_stream": False,
    "demux_second_text_stream": False,
    "conditioners": None,
    "lora": False,
    "quantize": False,
}
"""Fields of Kyutai's configuration of which only this value is supported."""
TRANSFORMERS: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "audio_vocab_size": None,
    "sliding_window": 3000,
    "ffn_dim": 22_528,
    "rms_norm_eps": 1e-8,
    "num_codebooks": 8,
    "rope_parameters": None,
    "rope_theta": 10_000.0,
    "hidden_act": "silu",
}
"""Fields of transformers' configuration and their defaults; ``depth_decoder_config`` has the fields of ``DEPTH``."""
DEPTH: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": None,
    "head_dim": None,
    "ffn_dim": 5632,
    "rms_norm_eps": 1e-8,
    "hidden_act": "silu",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MoshiSizes:
    """Dimensions of the language model. Its streams are the text, its own codebooks, and the user's codebooks."""

    text_ids: int
    """Text tokens. The id after the last one begins a session."""
    drawn_ids: int
    """Text tokens that the model can draw."""
    codes: int
    """Entries of a codebook. The id after the last one begins a session."""
    own: int
    """Codebooks of the model's speech."""
    user: int
    """Codebooks of the user's speech."""
    delays: tuple[int, ...]
    """Frames by which each stream is delayed [1 + own + user]."""
    temporal: Any
    """Dimensions of the transformer over frames, as ``TransformerDecoder`` reads them."""
    depth: Any
    """Dimensions of the transformer over a frame's codebooks."""
    depth_weights: tuple[int, ...]
    """The depth transformer's weights of each codebook [own]."""
    window: int
    """Frames that the temporal transformer attends to."""

    @property
    def lag(self) -> int:
        """Frames between a frame's text and its last code."""
        return max(self.delays)


def kyutai_sizes(config: Mapping[str, Any], where: str) -> MoshiSizes:
    """Read Kyutai's configuration; ``where`` names it in errors. Raises WeightsError."""
    for name, value in REQUIRED.items():
        if (config.get(name) or value) != value:
            raise WeightsError(f"{where}: {name}={config[name]!r:.80} is not supported (only {value!r}).")
    one = SimpleNamespace(**KYUTAI | {name: value for name, value in config.items() if name in KYUTAI})
    if not one.dep_q:
        raise WeightsError(
            f"{where}: dep_q=0, so the model cannot speak. Choose a checkpoint with a depth transformer."
        )
    own = one.dep_q if one.dep_q < one.n_q else one.n_q // 2  # PersonaPlex predicts the user's codebooks too
    if len(one.delays) != one.n_q + 1:
        raise WeightsError(f"{where}: delays must have {one.n_q + 1} values, one per stream (got {len(one.delays)}).")
    schedule = one.depformer_weights_per_step_schedule or range(own)
    wide = one.depformer_dim_feedforward or int(one.hidden_scale * one.depformer_dim)
    return MoshiSizes(
        text_ids=one.text_card,
        drawn_ids=one.text_card_out or one.text_card,
        codes=one.card,
        own=own,
        user=one.n_q - own,
        delays=tuple(one.delays),
        temporal=_stack(
            one.dim, one.num_layers, one.num_heads, one.num_heads // one.kv_repeat,
            _gated(one.dim, int(one.hidden_scale * one.dim)), theta=float(one.max_period),
        ),
        depth=_stack(
            one.depformer_dim, one.depformer_num_layers, one.depformer_num_heads,
            one.depformer_num_heads // one.kv_repeat, _gated(one.depformer_dim, wide),
        ),
        depth_weights=tuple(schedule)[:own],
        window=one.context,
    )  # fmt: skip


def kyutai_codec(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return Kyutai's configuration of Mimi (``mimi_config_name``) with the field names of transformers."""
    convolutions, books, stack = (dict[str, Any](config[name]) for name in ("seanet", "quantizer", "transformer"))
    return {
        "sampling_rate": config["sample_rate"],
        "audio_channels": config["channels"],
        "frame_rate": config["frame_rate"],
        "hidden_size": convolutions["dimension"],
        "num_filters": convolutions["n_filters"],
        "num_residual_layers": convolutions["n_residual_layers"],
        "upsampling_ratios": convolutions["ratios"],
        "kernel_size": convolutions["kernel_size"],
        "last_kernel_size": convolutions["last_kernel_size"],
        "residual_kernel_size": convolutions["residual_kernel_size"],
        "dilation_growth_rate": convolutions["dilation_base"],
        "compress": convolutions["compress"],
        "pad_mode": convolutions["pad_mode"],
        "codebook_size": books["bins"],
        "codebook_dim": books["dimension"],
        "vector_quantization_hidden_dimension": books["dimension"],
        "num_quantizers": books["n_q"],
        "num_semantic_quantizers": books.get("n_q_semantic", 1),
        "upsample_groups": convolutions["dimension"],
        "num_hidden_layers": stack["num_layers"],
        "intermediate_size": stack["dim_feedforward"],
        "num_attention_heads": stack["num_heads"],
        "num_key_value_heads": stack["num_heads"],
        "sliding_window": stack["context"],
        "rope_parameters": {"rope_theta": float(stack["max_period"])},
    }


def transformers_sizes(config: Mapping[str, Any], where: str) -> MoshiSizes:
    """Read transformers' configuration (MoshiConfig); ``where`` names it in errors. Raises WeightsError."""
    one = SimpleNamespace(**TRANSFORMERS | {name: value for name, value in config.items() if name in TRANSFORMERS})
    below = config.get("depth_decoder_config") or {}
    depth = SimpleNamespace(**DEPTH | {name: value for name, value in below.items() if name in DEPTH})
    for stack in (one, depth):
        if stack.hidden_act != "silu":
            raise WeightsError(f"{where}: hidden_act={stack.hidden_act!r:.80} is not supported (only 'silu').")
    theta = (one.rope_parameters or {}).get("rope_theta", one.rope_theta)
    codec = config.get("audio_encoder_config") or {}
    delays = (0, *[1] * (one.num_codebooks - 1))
    return MoshiSizes(
        text_ids=one.vocab_size,
        drawn_ids=one.vocab_size,
        codes=one.audio_vocab_size or codec.get("codebook_size", 2048),
        own=one.num_codebooks,
        user=one.num_codebooks,
        delays=(0, *delays, *delays),
        temporal=_of_transformers(one, theta),
        depth=_of_transformers(depth, theta),
        depth_weights=tuple(range(one.num_codebooks)),
        window=one.sliding_window,
    )


def _of_transformers(one: Any, theta: float) -> Any:
    found = _stack(
        one.hidden_size,
        one.num_hidden_layers,
        one.num_attention_heads,
        one.num_key_value_heads or one.num_attention_heads,
        one.ffn_dim // 2,
        theta,
    )
    found.head_dim = one.head_dim
    found.rms_norm_eps = one.rms_norm_eps
    return found


def _stack(width: int, layers: int, heads: int, kv_heads: int, inner: int, theta: float = 10_000.0) -> Any:
    return SimpleNamespace(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=None,
        intermediate_size=inner,
        rms_norm_eps=1e-8,
        rope_parameters={"rope_theta": theta},
        head_norms=False,
    )


def _gated(width: int, wide: int) -> int:
    """Return the inner width of a gated feed-forward network of the size of a plain one (moshi's gating.py)."""
    return 21 * width // 8 if wide == 4 * width else 2 * wide // 3
