"""Transformers' Moshi and Mimi: what the model says of a whole session at once, given the tokens that it drew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, MoshiForConditionalGeneration


@dataclass(frozen=True, slots=True)
class Heard:
    """The most probable tokens of each position, given all tokens before: text [positions], codes [positions, own]."""

    text: NDArray[np.int64]
    codes: NDArray[np.int64]


class Oracle:
    def __init__(self, folder: Path) -> None:
        self.model: Any = MoshiForConditionalGeneration.from_pretrained(folder).eval().requires_grad_(False)
        self.books: int = self.model.config.num_codebooks
        self.window: int = self.model.config.sliding_window

    def codes(self, wave: NDArray[np.float32]) -> NDArray[np.int64]:
        """Encode a whole recording: [frames, books]."""
        found = self.model.audio_encoder.encode(torch.from_numpy(wave)[None, None], num_quantizers=self.books)
        return found.audio_codes[0].T.numpy()

    def wave(self, codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Decode all frames [frames, books] at once."""
        return self.model.audio_encoder.decode(torch.from_numpy(codes.T.copy())[None]).audio_values[0, 0].numpy()

    def follow(self, inputs: NDArray[np.int64], drawn: NDArray[np.int64]) -> Heard:
        """Say what would be drawn at each position, in one pass.

        ``inputs`` [positions, streams] are the tokens that each position reads, ``drawn`` [positions, 1 + own] those
        that were drawn there.
        """
        at = torch.arange(len(inputs))
        apart = at[:, None] - at
        seen = ((apart >= 0) & (apart < self.window))[None, None]
        rows = self.embedded(inputs)[None]
        hidden = self.model.decoder.model(inputs_embeds=rows, attention_mask=seen, use_cache=False)
        return self._drawn(hidden.last_hidden_state[0], drawn)

    def stepped(self, inputs: NDArray[np.int64], drawn: NDArray[np.int64]) -> Heard:
        """Say what ``follow`` says, position by position with transformers' sliding cache."""
        cache, rows = DynamicCache(config=self.model.config), list[Tensor]()
        for row in self.embedded(inputs):
            out = self.model.decoder.model(inputs_embeds=row[None, None], past_key_values=cache, use_cache=True)
            rows.append(out.last_hidden_state[0, 0])
        return self._drawn(torch.stack(rows), drawn)

    def embedded(self, inputs: NDArray[np.int64]) -> Tensor:
        ids = torch.from_numpy(inputs)
        rows = sum(table(ids[:, 1 + i]) for i, table in enumerate(self.model.embed_tokens))
        return rows + self.model.decoder.model.embed_tokens(ids[:, 0])

    def _drawn(self, hidden: Tensor, drawn: NDArray[np.int64]) -> Heard:
        text = self.model.decoder.lm_head(hidden).argmax(-1)
        before = torch.from_numpy(drawn[:, :-1].copy())
        out = self.model.depth_decoder(input_ids=before, last_hidden_state=hidden[:, None], use_cache=False)
        return Heard(text.numpy(), out.logits.argmax(-1).numpy())


def inputs_of(drawn: NDArray[np.int64], user: NDArray[np.int64], text_ids: int, codes: int) -> NDArray[np.int64]:
    """Return the tokens that each position of a session reads [positions, streams].

    ``drawn`` [positions, 1 + own] are the tokens drawn at each position, which the next one reads. ``user``
    [positions - 1, own] are the user's codes from the second frame on. All codebooks but each speaker's first are one
    frame late.
    """
    count, own = len(drawn), drawn.shape[1] - 1
    found = np.full((count, 1 + 2 * own), codes, np.int64)
    found[:, 0] = text_ids
    found[1:, : 1 + own] = drawn[:-1]
    found[1, 2 : 1 + own] = codes
    found[1:, 1 + own] = user[: count - 1, 0]
    found[2:, 2 + own :] = user[: count - 2, 1:]
    return found


def frames_of(drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the complete frames [positions - 1, own] of a session's drawn tokens."""
    return np.concatenate((drawn[:-1, 1:2], drawn[1:, 2:]), 1)
