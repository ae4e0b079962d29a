"""What the thinker computes: rows of its slots' prompts and tokens to hidden rows, and those to the next tokens.

Its state lies in slots of its cache. Knows no stage, no request and no word.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from engine.worker.models.qwen3_omni.source import THINKER, Source
from engine.worker.nn.decoder import Decoder
from engine.worker.nn.device import put
from engine.worker.nn.replay import Replay
from engine.worker.nn.sampler import Draw, Draws, draw
from engine.worker.nn.slots import Batch, Rows, Tips
from engine.worker.nn.tips import Columns, Tip
from engine.worker.nn.weights import Reader


class ThinkerNet:
    """The checkpoint's thinker without its encoders."""

    def __init__(self, source: Source, read: Reader) -> None:
        self.device, self.dtype = source.device, source.dtype
        size = source.text.vocab_size, source.text.hidden_size
        self.words = read("model.embed_tokens.weight", *size)
        tied = source.config.thinker_config.tie_word_embeddings
        self.head = self.words if tied else read("lm_head.weight", *size)
        self.decoder = Decoder(read.below("model"), source.text)
        self.cache = self.decoder.cache(source.slots + source.static, source.context)
        self.tap = source.config.talker_config.accept_hidden_layer if source.voices else -1
        self.top_k: int = source.generation.get("top_k", 20)
        self.graphs: Replay | None = None
        if source.static:
            self.graphs = Replay("thinker", self._step, source.slots, source.context, self.top_k, self.device)
            self.graphs.warm()

    def append(self, batch: Batch, added: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """See Decoder.append; the second is what the talker hears of sounds and pictures."""
        return self.decoder.append(batch, self.cache, self.tap, added)

    def write(self, tips: Sequence[Tip]) -> list[int]:
        """Take in a token for each slot, and the token behind it; FAILED from what is no number."""
        if self.graphs is not None:
            return self.graphs(tips)[:, 0].tolist()
        rows = Rows.of([tip.slot for tip in tips], [tip.start for tip in tips], 1, self.device)
        tokens, places = put([tip.token for tip in tips], self.device), put([tip.place for tip in tips], self.device)
        return self.choose(self._forward(tokens, places, rows), [tip.how for tip in tips], [tip.step for tip in tips])

    def choose(self, hidden: Tensor, hows: Sequence[Draw], steps: Sequence[int]) -> list[int]:
        """A token from each hidden row [batch, width]."""
        draws = Draws.of(hows, self.device)
        return draw(F.linear(hidden, self.head), draws, THINKER, put(steps, self.device)).tolist()

    def _forward(self, tokens: Tensor, places: Tensor, rows: Rows | Tips) -> Tensor:
        """Hidden rows [batch, width] of a token each, at places where all axes agree."""
        angles = self.decoder.rope(places.expand(3, -1)[..., None], self.dtype)
        hidden, _ = self.decoder.forward(self.words[tokens][:, None], angles, rows, self.cache)
        return hidden[:, -1]

    def _step(self, tips: Columns, reach: int) -> Tensor:
        """``write`` as a graph captures it: tokens [batch, 1]."""
        rows = Tips.of(tips.slots, tips.starts, reach, self.dtype)
        hidden = self._forward(tips.tokens, tips.places, rows)
        return draw(F.linear(hidden, self.head), tips.draws, THINKER, tips.steps)[:, None]
