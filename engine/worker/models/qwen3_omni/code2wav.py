"""The code2wav stage: codec frames to audio with the checkpoint's code2wav."""

from __future__ import annotations

from engine.errors import WeightsError
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.nn.codec import CodecDecoder, MeanOfBooks
from engine.worker.stage import StageConfig
from engine.worker.talker import code2wav


class Code2Wav(code2wav.Code2WavStage):
    """The code2wav stage."""

    def __init__(self, config: StageConfig) -> None:
        self.source = source = Qwen3OmniSource(config)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no code2wav. Configure only its thinker.")
        sizes = source.config.code2wav_config
        read, slots = source.reader("code2wav.", source.sound_dtype), source.slots + 1
        net = CodecDecoder(read, sizes, slots, MeanOfBooks(read, sizes, slots), late=True)
        super().__init__(self.describe(config), net, source.device, source.static, source.rounds)
