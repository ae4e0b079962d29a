"""The reference for Qwen3-Omni: transformers' own model, patched where it is wrong, and what it thought at each step.

The patches (transformers 5.23): the talker's config lacks ``audio_config``, which its positions need when a picture is
there too; ``generate`` has one checkpoint's end token as its default; ``chunked_decode`` loses samples at each
boundary, so the sound is ``code2wav`` of all codes at once; a whole processor wants torchvision, so its parts are
joined by hand.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    Qwen3OmniMoeForConditionalGeneration,
    WhisperFeatureExtractor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.utils import logging

logging.disable_progress_bar()  # its monitor is a thread that stays

CLOSE = 1e-4
"""Where the two best (or the last chosen expert and the first refused one) are nearer than this, either is right."""

Part = str | np.ndarray
"""Text; int16 [samples] at 16 kHz; uint8 [height, width, 3]."""
Turn = tuple[str, Sequence[Part] | Sequence[int]]
"""A role, and its parts; an assistant's raw token ids."""


@dataclass(slots=True)
class Thoughts:
    """The logits that every token was chosen from, and how near the runner-up was: one entry a step."""

    text: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    codes: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    residual: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    routers: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def close_calls(self) -> dict[str, list[int]]:
        """The steps at which a choice hung by a thread, for the text and for the frames."""
        groups = len(self.residual) // max(1, len(self.codes) - 1)
        frames = [[one, *self.residual[i * groups : (i + 1) * groups]] for i, one in enumerate(self.codes)]
        calls = {
            "text": [i for i, one in enumerate(self.text) if _gap(one) < CLOSE],
            "codes": [i for i, frame in enumerate(frames) if min(map(_gap, frame)) < CLOSE],
        }
        for stage, kind in (("thinker", "text"), ("talker", "codes")):
            calls[kind] += [i for i, gap in enumerate(self.routers.get(stage, [])) if gap < CLOSE]
        return calls


@dataclass(frozen=True, slots=True)
class Answer:
    """What the reference said: text ids with the last one, codes [frames, groups], sound [samples]."""

    ids: list[int]
    codes: np.ndarray
    wave: np.ndarray
    thoughts: Thoughts


class Oracle:
    """One checkpoint in the reference."""

    def __init__(self, folder: Path, eos: Sequence[int] | None = None) -> None:
        self.model: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self.model.talker.config.audio_config = self.model.config.thinker_config.audio_config
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.eos = list(eos or [self.model.config.im_end_token_id])
        settings = json.loads((folder / "preprocessor_config.json").read_text())
        self._ears: Any = WhisperFeatureExtractor.from_pretrained(folder)
        self._eyes = Qwen2VLImageProcessorPil(
            **{name: settings[name] for name in ("patch_size", "merge_size", "temporal_patch_size", "size")}
        )

    def inputs(self, turns: Sequence[Turn]) -> dict[str, torch.Tensor]:
        """What the model is given for a conversation."""
        given: dict[str, torch.Tensor] = {}
        parts = [part for _, parts in turns for part in parts if isinstance(part, np.ndarray)]
        sounds = [part.astype(np.float32) / 32768 for part in parts if part.ndim == 1]
        pictures = [part for part in parts if part.ndim == 3]
        counts: dict[str, list[int]] = {"audio": [], "image": []}
        if sounds:
            heard = self._ears(
                sounds, sampling_rate=16000, padding=True, truncation=False, return_attention_mask=True,
                return_tensors="pt",
            )  # fmt: skip
            given |= {"input_features": heard["input_features"], "feature_attention_mask": heard["attention_mask"]}
            counts["audio"] = [_audio_tokens(int(n)) for n in heard["attention_mask"].sum(-1)]
        if pictures:
            seen = self._eyes(images=pictures, return_tensors="pt")
            given |= {"pixel_values": seen["pixel_values"], "image_grid_thw": seen["image_grid_thw"]}
            counts["image"] = [int(grid.prod()) // self._eyes.merge_size**2 for grid in seen["image_grid_thw"]]
        ids = torch.tensor([self._ids(turns, counts)])
        return given | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def _ids(self, turns: Sequence[Turn], counts: dict[str, list[int]]) -> list[int]:
        raw: list[list[int]] = []
        messages: list[dict[str, Any]] = []
        for role, parts in turns:
            if role == "assistant" and parts and isinstance(parts[0], int):
                raw.append([int(id) for id in parts])  # type: ignore[arg-type]
                messages.append({"role": role, "content": "\0"})
            else:
                messages.append({"role": role, "content": [_named(part) for part in parts]})
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        for kind, numbers in counts.items():
            token = getattr(self.tokenizer, f"{kind}_token")
            head, *tails = text.split(token)
            text = head + "".join(token * n + tail for n, tail in zip(numbers, tails, strict=True))
        pieces = [self.tokenizer.encode(piece, add_special_tokens=False) for piece in text.split("\0")]
        whole = pieces[0]
        for ids, piece in zip(raw, pieces[1:], strict=True):
            whole = whole + ids + piece
        return whole

    @torch.no_grad()
    def answer(self, turns: Sequence[Turn], tokens: int, frames: int, voice: str = "ethan") -> Answer:
        """Generate greedily: at most so many text tokens (the last is not spoken) and codec frames."""
        given = self.inputs(turns)
        thoughts = Thoughts()
        codes: list[torch.Tensor] = []
        with _overheard(self.model, thoughts), _caught(self.model.code2wav, codes), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of its own defaults
            ids, _ = self.model.generate(
                **given, speaker=voice, thinker_max_new_tokens=tokens, talker_max_new_tokens=frames + 1,
                thinker_eos_token_id=self.eos, thinker_do_sample=False, talker_do_sample=False,
                talker_logits_processor=LogitsProcessorList([_Scores(thoughts.codes)]),
            )  # fmt: skip
        wave = self.model.code2wav(codes[0])[0, 0]
        new = ids[0, given["input_ids"].shape[1] :].tolist()
        return Answer(new, codes[0][0].T.numpy(), wave.numpy(), thoughts)

    @torch.no_grad()
    def sound(self, codes: np.ndarray) -> np.ndarray:
        """The sound of codes [frames, groups], decoded at once."""
        return self.model.code2wav(torch.from_numpy(codes.astype(np.int64)).T[None])[0, 0].numpy()


class _Scores(LogitsProcessor):
    """Keeps what the talker's codes were chosen from: after the penalty and the suppression."""

    def __init__(self, into: list[torch.Tensor]) -> None:
        self._into = into

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._into.append(scores[0].clone())
        return scores


@contextmanager
def _overheard(model: Any, thoughts: Thoughts) -> Iterator[None]:
    """Listen to the heads and routers of a model while it generates."""
    hooks = [model.thinker.lm_head.register_forward_hook(lambda _m, _i, out: thoughts.text.append(out[0, -1].clone()))]
    hooks += [
        head.register_forward_hook(lambda _m, _i, out: thoughts.residual.append(out[0, -1].clone()))
        for head in model.talker.code_predictor.lm_head
    ]
    for stage, stack in (("thinker", model.thinker.model.language_model), ("talker", model.talker.model)):
        gaps = thoughts.routers.setdefault(stage, [])
        hooks.append(stack.register_forward_pre_hook(lambda _m, _i, gaps=gaps: gaps.append(torch.inf)))
        for name, module in stack.named_modules():
            if name.endswith("mlp.gate"):

                def hear(module: Any, _inputs: Any, out: Any, gaps: list[float] = gaps) -> None:
                    best = out[0].topk(module.top_k + 1, -1).values
                    gaps[-1] = min(gaps[-1], float((best[..., -2] - best[..., -1]).min()))

                hooks.append(module.register_forward_hook(hear))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _caught(code2wav: Any, codes: list[torch.Tensor]) -> Iterator[None]:
    """Take the codes instead of decoding them in chunks."""

    def chunked_decode(found: torch.Tensor, **_: Any) -> torch.Tensor:
        codes.append(found)
        return torch.zeros(1, 1, 1)

    code2wav.chunked_decode = chunked_decode
    try:
        yield
    finally:
        del code2wav.chunked_decode


def _gap(logits: torch.Tensor) -> float:
    best = logits.topk(2).values
    return float(best[0] - best[1])


def _named(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "audio" if part.ndim == 1 else "image"}


def _audio_tokens(frames: int) -> int:
    """Tokens of so many mel frames: thirteen a second, fewer for the rest (the reference's own formula)."""
    rest = (frames % 100 - 1) // 2 + 1
    return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + frames // 100 * 13
