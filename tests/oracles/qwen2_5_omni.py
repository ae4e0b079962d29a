"""The reference for Qwen2.5-Omni: transformers' own model, patched where it is wrong.

The patches (transformers 5.23): ``generate`` drops an attention mask of ones, and with it the talker's beginning and
its positions, so the mask is given back; pictures would go to the talker, too, so they are the thinker's alone; ids
between the codebook and the marks have no row in the sound's table, so they are not drawn. Noise is ours.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList, Qwen2_5OmniForConditionalGeneration

from tests.oracles import qwen3_omni
from tests.oracles.qwen3_omni import Answer, Scores, Thoughts, Turn, Video, remembered


class Oracle(qwen3_omni.Oracle):
    """One checkpoint in the reference."""

    model_class = Qwen2_5OmniForConditionalGeneration
    padding: Any = "max_length"
    patch = 14

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [0])
        self.eos = [int(self.model.generation_config.eos_token_id)]
        talker = self.model.talker
        self.ends = [talker.codec_pad_token, talker.codec_eos_token]
        self.book = int(self.model.config.token2wav_config.dit_config.num_embeds)
        talker.forward = _masked(talker.forward)

    @staticmethod
    def audio_tokens(frames: int) -> int:
        return ((frames - 1) // 2 + 1 - 2) // 2 + 1

    def _seen(self, video: Video, grid: list[int], tracks: list[int]) -> str:
        """What stands for a video: its rows; with its sound, both in chunks of two seconds."""
        rows, cells = grid[0] * grid[1] * grid[2] // 4, grid[1] * grid[2] // 4
        if video.pcm is None:
            return "\1" * rows
        config = self.model.config.thinker_config
        chunk = int(config.position_id_per_seconds * config.seconds_per_chunk)
        times = [int(np.float32(i // cells) * np.float32(2 / video.fps) * np.float32(25)) for i in range(rows)]
        seen, heard = _chunks(times, chunk), _chunks(list(range(tracks.pop(0))), chunk)
        longest = max(len(seen), len(heard))
        seen, heard = (one + [0] * (longest - len(one)) for one in (seen, heard))
        whole = "".join("\1" * a + "\2" * b for a, b in zip(seen, heard, strict=True))
        return self.tokenizer.audio_bos_token + whole + self.tokenizer.audio_eos_token

    @remembered
    @torch.no_grad()
    def answer(self, turns: Sequence[Turn], tokens: int, frames: int, voice: str = "ethan") -> Answer:
        """Generate greedily: at most so many text tokens (the last is not spoken) and codes."""
        own = ("pixel_values", "pixel_values_videos")
        given = {f"thinker_{name}" if name in own else name: value for name, value in self.inputs(turns).items()}
        thoughts, codes = Thoughts(), list[torch.Tensor]()
        with _overheard(self.model, thoughts), _caught(self.model, codes), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of its own defaults
            ids, _ = self.model.generate(
                **given, speaker=voice.capitalize(), thinker_max_new_tokens=tokens, talker_max_new_tokens=frames,
                thinker_eos_token_id=self.eos, thinker_do_sample=False, talker_do_sample=False,
                talker_eos_token_id=self.ends,
                talker_logits_processor=LogitsProcessorList([_Book(self.book, self.ends), Scores(thoughts.codes)]),
            )  # fmt: skip
        new = ids[0, given["input_ids"].shape[1] :].tolist()
        return Answer(new, codes[0][0][:, None].numpy(), np.zeros(0, np.float32), thoughts)

    @remembered
    @torch.no_grad()
    def whole(self, codes: np.ndarray, noise: torch.Tensor, voice: str = "ethan") -> np.ndarray:
        """The sound of codes [n, 1], decoded at once from noise [1, frames, mel]."""
        speaker = self.model.speaker_map[voice.capitalize()]
        real, torch.randn = torch.randn, lambda *_a, **_k: noise  # type: ignore[assignment]
        try:
            ids = torch.from_numpy(codes[:, 0].astype(np.int64))[None]
            wave = self.model.token2wav(ids, conditioning=speaker["cond"], reference_mel=speaker["ref_mel"])
        finally:
            torch.randn = real
        return wave.numpy()


class _Book(LogitsProcessor):
    """Lets the codes and the ends be drawn, and nothing between them."""

    def __init__(self, book: int, ends: Sequence[int]) -> None:
        self._book, self._ends = book, list(ends)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept = torch.full_like(scores, -torch.inf)
        kept[:, : self._book], kept[:, self._ends] = scores[:, : self._book], scores[:, self._ends]
        return kept


def _masked(forward: Any) -> Any:
    """The talker's forward with the mask that was dropped."""

    @functools.wraps(forward)
    def masked(*args: Any, **given: Any) -> Any:
        if given.get("attention_mask") is None:
            own = next(one for one in (given.get("inputs_embeds"), given.get("input_ids")) if one is not None)
            past = given.get("past_key_values")
            before = 0 if past is None else past.get_seq_length()
            given["attention_mask"] = torch.ones(1, before + own.shape[1], dtype=torch.long)
        return forward(*args, **given)

    return masked


@contextmanager
def _overheard(model: Any, thoughts: Thoughts) -> Iterator[None]:
    hook = model.thinker.lm_head.register_forward_hook(lambda _m, _i, out: thoughts.text.append(out[0, -1].clone()))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _caught(model: Any, codes: list[torch.Tensor]) -> Iterator[None]:
    """Take the codes instead of decoding them."""
    forward = model.token2wav.forward

    @functools.wraps(forward)
    def caught(code: torch.Tensor, *_args: Any, **_given: Any) -> torch.Tensor:
        codes.append(code)
        return torch.zeros(1)

    model.token2wav.forward = caught
    try:
        yield
    finally:
        model.token2wav.forward = forward


def _chunks(times: Sequence[int], chunk: int) -> list[int]:
    """How many of these rows are in each chunk (the processor's loop)."""
    counts, current = [0], 1
    for time in times:
        if time >= current * chunk:
            counts.append(0)
            current += 1
        counts[-1] += 1
    return counts
