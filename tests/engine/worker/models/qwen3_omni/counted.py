"""What stages of Qwen3-Omni computed, counted: rows of their decoders, and runs of their encoders."""

from __future__ import annotations

from typing import Any

import pytest

from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.omni import thinker
from engine.worker.stage import StageConfig


class Counted:
    """How many rows stages computed, and how often the encoders ran, those of pictures alone, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.encoded = self.looked = self.thought = 0
        """``thought`` are the rows of thinkers alone."""
        self.stages: list[Any] = []
        made, forward = thinker.OmniThinker.__init__, TransformerDecoder.forward

        def counted(decoder: Any, x: Any, *more: Any) -> Any:
            self.rows += x.shape[0] * x.shape[1]
            self.thought += x.shape[0] * x.shape[1] * any(stage.net.decoder is decoder for stage in self.stages)
            return forward(decoder, x, *more)

        def counting(encoder: Any, looks: bool) -> Any:
            def encode(*given: Any, **named: Any) -> Any:
                self.encoded, self.looked = self.encoded + 1, self.looked + looks
                return encoder(*given, **named)

            return encode

        def making(stage: Any, place: StageConfig) -> None:
            made(stage, place)
            encoders = stage.encoders
            encoders.ears, encoders.eyes = counting(encoders.ears, False), counting(encoders.eyes, True)
            self.stages.append(stage)

        monkeypatch.setattr(TransformerDecoder, "forward", counted)
        monkeypatch.setattr(thinker.OmniThinker, "__init__", making)

    def taken(self) -> tuple[int, int]:
        """Rows and encodings since the last call."""
        found, self.rows, self.encoded = (self.rows, self.encoded), 0, 0
        return found
