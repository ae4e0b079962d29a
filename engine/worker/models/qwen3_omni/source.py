"""Qwen3-Omni checkpoint: configuration, voices, special tokens, and layout of audio and video."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from engine.errors import WeightsError
from engine.worker.models.qwen3_omni.defaults import DEFAULTS
from engine.worker.models.qwen3_omni.feed import Qwen3TalkerFeed
from engine.worker.models.qwen3_omni.special_tokens import Qwen3SpecialTokens
from engine.worker.omni import source
from engine.worker.omni.positions import RopePositions
from engine.worker.omni.sound import FRAMES_PER_S, AudioLayout
from engine.worker.stage import StageConfig
from engine.worker.talker.code2wav import sound_dtype

FRAME_S = 0.08


class Qwen3OmniSource(source.OmniSource):
    """The checkpoint, as used by every stage."""

    family = "qwen3_omni"
    architecture = "Qwen3OmniMoeForConditionalGeneration"
    defaults = DEFAULTS
    options = source.OmniSource.options | {"sound_dtype", "window_s"}

    def __init__(self, config: StageConfig) -> None:
        super().__init__(config)
        self.sound_dtype = sound_dtype(wanted := config.options.get("sound_dtype", "float32"))
        """The dtype of code2wav, independent of the other stages; bfloat16 causes audible errors."""
        self.rounds = wanted == "tfloat32"
        self.window_s: float | None = config.options.get("window_s")

    @cached_property
    def voices(self) -> Mapping[str, int]:
        """Ids of the voices by name."""
        return dict(self.config.talker_config.speaker_id or {}) if self.config.enable_audio_output else {}

    @cached_property
    def marks(self) -> Qwen3SpecialTokens:
        """Special tokens (cached, because every step uses them)."""
        whole = self.config
        thinker = whole.thinker_config
        return Qwen3SpecialTokens(
            turn=whole.im_start_token_id,
            user=whole.user_token_id,
            audio=thinker.audio_token_id,
            image=thinker.image_token_id,
            video=thinker.video_token_id,
            audio_start=thinker.audio_start_token_id,
            audio_end=thinker.audio_end_token_id,
            pad=whole.tts_pad_token_id,
            begin=whole.tts_bos_token_id,
            end=whole.tts_eos_token_id,
        )

    @cached_property
    def positions(self) -> RopePositions:
        """Rope positions with fractional times; a video's cells and audio alternate one by one."""
        return RopePositions(self.marks, self.config.thinker_config.position_id_per_seconds)

    @cached_property
    def talker_feed(self) -> Qwen3TalkerFeed:
        """The feed; a checkpoint without a talker taps no layer."""
        tap = self.config.talker_config.accept_hidden_layer if self.voices else -1
        return Qwen3TalkerFeed(self.marks, self.positions, tap)

    @cached_property
    def audio(self) -> AudioLayout:
        """Audio layout: windows of the encoder's own length (n_window_infer), or of ``options.window_s``.

        Raises WeightsError if the length is not a multiple of the encoder's pieces (2 n_window frames), or exceeds its
        own.
        """
        config = self.config.thinker_config.audio_config
        piece, own = 2 * config.n_window, config.n_window_infer
        window = own if self.window_s is None else round(self.window_s * FRAMES_PER_S)
        if not 0 < window <= own or window % piece:
            raise WeightsError(
                f"options.window_s must be a multiple of {piece / FRAMES_PER_S:g} s (the encoder's pieces) "
                f"and at most {own / FRAMES_PER_S:g} s (got {self.window_s})"
            )
        return AudioLayout(window, lambda frames: audio_tokens(frames, piece), piece)


def audio_tokens(frames: int, piece: int) -> int:
    """Return the number of encoder rows for a number of mel frames: 13 per full ``piece``, fewer for the rest."""
    rest = (frames % piece - 1) // 2 + 1
    return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + frames // piece * 13
