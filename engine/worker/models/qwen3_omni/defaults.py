"""Fields of config.json that the stages read, with the defaults for omitted ones.

Source: the configuration classes of transformers 5.23, models/qwen3_omni_moe.
"""

from __future__ import annotations

from typing import Any

# fmt: off
_AUDIO: dict[str, Any] = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "d_model": 1280,
    "activation_function": "gelu", "max_source_positions": 1500, "n_window": 50, "output_dim": 3584,
    "n_window_infer": 800, "conv_chunksize": 500, "downsample_hidden_size": 480,
}
_VISION: dict[str, Any] = {
    "depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 4304, "num_heads": 16,
    "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584,
    "num_position_embeddings": 2304, "deepstack_visual_indexes": (8, 16, 24), "rope_parameters": {"rope_theta": 1e4},
}
_TEXT: dict[str, Any] = {
    "vocab_size": 3584, "hidden_size": 2048, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "attention_bias": False, "decoder_sparse_step": 1, "moe_intermediate_size": 768, "num_experts_per_tok": 8,
    "num_experts": 128, "norm_topk_prob": True, "mlp_only_layers": (), "rope_parameters": {"rope_theta": 1e6},
}
_THINKER: dict[str, Any] = {
    "audio_config": _AUDIO, "vision_config": _VISION, "text_config": _TEXT, "position_id_per_seconds": 25,
    "audio_start_token_id": 151647, "tie_word_embeddings": False, "audio_token_id": 151646, "image_token_id": 151655,
    "video_token_id": 151656,
}
_PREDICTOR: dict[str, Any] = {
    "vocab_size": 2048, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 5,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
    "attention_bias": False, "num_code_groups": 32, "rope_parameters": {"rope_theta": 1e4},
}
_TALKER_TEXT: dict[str, Any] = {
    "vocab_size": 3072, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 20,
    "num_attention_heads": 16, "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "attention_bias": False, "decoder_sparse_step": 1, "moe_intermediate_size": 384, "num_experts_per_tok": 8,
    "num_experts": 128, "norm_topk_prob": False, "mlp_only_layers": (), "rope_parameters": {"rope_theta": 1e4},
}
_TALKER: dict[str, Any] = {
    "code_predictor_config": _PREDICTOR, "text_config": _TALKER_TEXT, "thinker_hidden_size": 2048,
    "codec_eos_token_id": 4198, "accept_hidden_layer": 18, "codec_nothink_id": 4203, "codec_think_bos_id": 4204,
    "codec_think_eos_id": 4205, "codec_pad_id": 4196, "codec_bos_id": 4197, "speaker_id": None,
}
_CODE2WAV: dict[str, Any] = {
    "codebook_size": 2048, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16,
    "attention_bias": False, "sliding_window": 72, "intermediate_size": 3072, "rms_norm_eps": 1e-5,
    "num_hidden_layers": 8, "num_quantizers": 16, "upsample_rates": (8, 5, 4, 3), "upsampling_ratios": (2, 2),
    "decoder_dim": 1536, "rope_parameters": {"rope_theta": 1e4},
}
DEFAULTS: dict[str, Any] = {
    "thinker_config": _THINKER, "talker_config": _TALKER, "code2wav_config": _CODE2WAV, "enable_audio_output": True,
    "im_start_token_id": 151644, "tts_pad_token_id": 151671, "tts_bos_token_id": 151672, "tts_eos_token_id": 151673,
    "user_token_id": 872,
}
