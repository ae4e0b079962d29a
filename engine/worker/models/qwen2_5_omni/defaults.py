"""Fields of config.json that the stages read, with the defaults for omitted ones.

Source: the configuration classes of transformers 5.23, models/qwen2_5_omni.
"""

from __future__ import annotations

from typing import Any

# fmt: off
_AUDIO: dict[str, Any] = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "d_model": 1280,
    "activation_function": "gelu", "max_source_positions": 1500, "n_window": 100, "output_dim": 3584,
}
_VISION: dict[str, Any] = {
    "depth": 32, "hidden_size": 3584, "hidden_act": "silu", "intermediate_size": 3420, "num_heads": 16,
    "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
    "out_hidden_size": 3584, "fullatt_block_indexes": (7, 15, 23, 31), "rope_parameters": {"rope_theta": 1e4},
}
_LAYERS: dict[str, Any] = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 1e6},
}
_IDS: dict[str, Any] = {
    "audio_token_index": 151646, "image_token_index": 151655, "video_token_index": 151656,
    "position_id_per_seconds": 25, "seconds_per_chunk": 2, "audio_start_token_id": 151647,
    "audio_end_token_id": 151648,
}
_THINKER: dict[str, Any] = _IDS | {
    "audio_config": _AUDIO, "vision_config": _VISION, "text_config": _LAYERS | {"vocab_size": 152064},
    "tie_word_embeddings": False,
}
_TALKER: dict[str, Any] = _IDS | _LAYERS | {
    "vocab_size": 8448, "embedding_size": 3584, "head_dim": 128, "tts_text_end_token_id": 151861,
    "tts_text_pad_token_id": 151859, "tts_codec_start_token_id": 8293, "tts_codec_end_token_id": 8294,
    "tts_codec_pad_token_id": 8292, "tts_codec_mask_token_id": 8296,
}
_DIT: dict[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 22, "num_attention_heads": 16, "ff_mult": 2, "emb_dim": 512,
    "head_dim": 64, "block_size": 24, "look_ahead_layers": (10,), "look_backward_layers": (0, 20), "repeats": 2,
    "num_embeds": 8193, "mel_dim": 80, "enc_emb_dim": 192, "enc_dim": 128, "enc_channels": (256, 256, 256, 256, 768),
    "enc_kernel_sizes": (5, 3, 3, 3, 1), "enc_dilations": (1, 2, 3, 4, 1), "enc_attention_channels": 64,
    "enc_res2net_scale": 2, "enc_se_channels": 64, "rope_parameters": {"rope_theta": 1e4},
}
_BIGVGAN: dict[str, Any] = {
    "mel_dim": 80, "upsample_initial_channel": 1536, "resblock_kernel_sizes": (3, 7, 11),
    "resblock_dilation_sizes": ((1, 3, 5), (1, 3, 5), (1, 3, 5)), "upsample_rates": (5, 3, 2, 2, 2, 2),
    "upsample_kernel_sizes": (11, 7, 4, 4, 4, 4),
}
DEFAULTS: dict[str, Any] = {
    "thinker_config": _THINKER, "talker_config": _TALKER, "enable_audio_output": True,
    "token2wav_config": {"dit_config": _DIT, "bigvgan_config": _BIGVGAN},
}
