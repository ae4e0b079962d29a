"""The reference for Qwen3-Omni: transformers' own model, patched where it is wrong, and what it thought at each step.

The patches (transformers 5.23): the talker's config lacks ``audio_config``, which its positions need when a picture is
there too; ``generate`` has one checkpoint's end token as its default; ``chunked_decode`` loses samples at each
boundary, so the sound is ``code2wav`` of all codes at once; a whole processor wants torchvision, so its parts are
joined by hand.
"""

from __future__ import annotations

import functools
import json
import math
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

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


@dataclass(frozen=True, slots=True, eq=False)
class Video:
    """uint8 [frames, height, width, 3] at so many a second, perhaps with a sound: int16 [samples] at 16 kHz."""

    frames: np.ndarray
    fps: float
    pcm: np.ndarray | None = None


Part = str | np.ndarray | Video
"""Text; int16 [samples] at 16 kHz; uint8 [height, width, 3]; a video."""
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


def remembered(method: Any) -> Any:
    """A method that computes what it is asked once: tests of a family ask one reference the same."""
    known: WeakKeyDictionary[Any, dict[bytes, Any]] = WeakKeyDictionary()

    @functools.wraps(method)
    def asked(self: Any, *given: Any, **named: Any) -> Any:
        own, key = known.setdefault(self, {}), pickle.dumps((given, named))
        if key not in own:
            own[key] = method(self, *given, **named)
        return own[key]

    return asked


class Oracle:
    """One checkpoint in the reference."""

    model_class: Any = Qwen3OmniMoeForConditionalGeneration
    padding: Any = True
    """How the reference pads the sounds of a conversation."""
    patch = 16

    def __init__(self, folder: Path, eos: Sequence[int] | None = None) -> None:
        self.model: Any = self.model_class.from_pretrained(folder, dtype=torch.float32).eval()
        self.model.talker.config.audio_config = self.model.config.thinker_config.audio_config
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.eos = list(eos or [self.model.config.im_end_token_id])
        settings = json.loads((folder / "preprocessor_config.json").read_text())
        self._ears: Any = WhisperFeatureExtractor.from_pretrained(folder)
        self._eyes = Qwen2VLImageProcessorPil(
            **{name: settings[name] for name in ("patch_size", "merge_size", "temporal_patch_size", "size")}
        )

    @remembered
    def inputs(self, turns: Sequence[Turn]) -> dict[str, torch.Tensor]:
        """What the model is given for a conversation."""
        given: dict[str, torch.Tensor] = {}
        parts = [part for _, parts in turns for part in parts if isinstance(part, np.ndarray | Video)]
        videos = [part for part in parts if isinstance(part, Video)]
        heard_parts = [part.pcm if isinstance(part, Video) else part for part in parts]
        sounds = [part.astype(np.float32) / 32768 for part in heard_parts if part is not None and part.ndim == 1]
        pictures = [part for part in parts if isinstance(part, np.ndarray) and part.ndim == 3]
        counts: dict[str, list[int]] = {"audio": [], "image": []}
        tracks: list[int] = []
        if sounds:
            heard = self._ears(
                sounds, sampling_rate=16000, padding=self.padding, truncation=False, return_attention_mask=True,
                return_tensors="pt",
            )  # fmt: skip
            given |= {"input_features": heard["input_features"], "feature_attention_mask": heard["attention_mask"]}
            rows = iter([self.audio_tokens(int(n)) for n in heard["attention_mask"].sum(-1)])
            for part, heard_part in zip(parts, heard_parts, strict=True):
                if heard_part is not None and heard_part.ndim == 1:
                    (tracks if isinstance(part, Video) else counts["audio"]).append(next(rows))
        if pictures:
            seen = self._eyes(images=pictures, return_tensors="pt")
            given |= {"pixel_values": seen["pixel_values"], "image_grid_thw": seen["image_grid_thw"]}
            counts["image"] = [int(grid.prod()) // self._eyes.merge_size**2 for grid in seen["image_grid_thw"]]
        if videos:
            pixels, grids = zip(*map(self._video, videos), strict=True)
            seconds = torch.tensor([2 / one.fps for one in videos])
            given |= {"pixel_values_videos": torch.cat(pixels), "video_grid_thw": torch.tensor(grids)}
            given |= {"video_second_per_grid": seconds}
            if any(one.pcm is not None for one in videos):
                given["use_audio_in_video"] = True  # type: ignore[assignment]
        text = self._text(turns)
        for video, grid in zip(videos, given.get("video_grid_thw", torch.zeros(0, 3)), strict=True):
            text = text.replace(self.tokenizer.video_token, self._seen(video, grid.tolist(), tracks), 1)
        ids = torch.tensor([self._ids(text.replace("\1", self.tokenizer.video_token), turns, counts)])
        return given | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    @staticmethod
    def audio_tokens(frames: int) -> int:
        """Tokens of so many mel frames: thirteen a second, fewer for the rest (the reference's own formula)."""
        rest = (frames % 100 - 1) // 2 + 1
        return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + frames // 100 * 13

    def _video(self, video: Video) -> tuple[torch.Tensor, list[int]]:
        """Patches of a video and its grid, as the reference's own processor (which wants torchvision) lays them out."""
        patch, cell = self.patch, 2 * self.patch
        size = SimpleNamespace(shortest_edge=128 * cell**2, longest_edge=768 * cell**2)
        eyes: Any = self._eyes
        frames = [eyes.resize(frame.transpose(2, 0, 1), size, eyes.resample, factor=cell) for frame in video.frames]
        frames = [eyes.normalize(eyes.rescale(one, 1 / 255), eyes.image_mean, eyes.image_std) for one in frames]
        whole = torch.from_numpy(np.stack([*frames, *frames[-1:] * (len(frames) % 2)]).astype(np.float32))
        count, _, high, wide = whole.shape
        grid = [count // 2, high // patch, wide // patch]
        patches = whole.view(grid[0], 2, 3, grid[1] // 2, 2, patch, grid[2] // 2, 2, patch)
        return patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(math.prod(grid), -1), grid

    def _seen(self, video: Video, grid: list[int], tracks: list[int]) -> str:
        """What stands for a video: its rows; with its sound, both merged by their times (the reference's loop)."""
        rows, cells = grid[0] * grid[1] * grid[2] // 4, grid[1] * grid[2] // 4
        if video.pcm is None:
            return "\1" * rows
        sounds, pace = tracks.pop(0), 2 / video.fps * self.model.config.thinker_config.position_id_per_seconds
        times = [i // cells * pace for i in range(rows)]
        text, heard = "", 0
        for time in times:
            while heard < sounds and time > heard:
                text, heard = text + "\2", heard + 1
            text += "\1"
        whole = text + "\2" * (sounds - heard)
        return self.tokenizer.audio_bos_token + whole + self.tokenizer.audio_eos_token

    def _text(self, turns: Sequence[Turn]) -> str:
        messages: list[dict[str, Any]] = []
        for role, parts in turns:
            raw = role == "assistant" and parts and isinstance(parts[0], int)
            messages.append({"role": role, "content": "\0" if raw else [_named(part) for part in parts]})
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def _ids(self, text: str, turns: Sequence[Turn], counts: dict[str, list[int]]) -> list[int]:
        raw = [
            [int(id) for id in parts]  # type: ignore[arg-type]
            for role, parts in turns
            if role == "assistant" and parts and isinstance(parts[0], int)
        ]
        for kind, numbers in counts.items():
            token = getattr(self.tokenizer, f"{kind}_token")
            head, *tails = text.split(token)
            text = head + "".join(token * n + tail for n, tail in zip(numbers, tails, strict=True))
        text = text.replace("\2", self.tokenizer.audio_token)
        pieces = [self.tokenizer.encode(piece, add_special_tokens=False) for piece in text.split("\0")]
        whole = pieces[0]
        for ids, piece in zip(raw, pieces[1:], strict=True):
            whole = whole + ids + piece
        return whole

    @remembered
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
                talker_logits_processor=LogitsProcessorList([Scores(thoughts.codes)]),
            )  # fmt: skip
        wave = self.model.code2wav(codes[0])[0, 0]
        new = ids[0, given["input_ids"].shape[1] :].tolist()
        return Answer(new, codes[0][0].T.numpy(), wave.numpy(), thoughts)

    @torch.no_grad()
    def sound(self, codes: np.ndarray) -> np.ndarray:
        """The sound of codes [frames, groups], decoded at once."""
        return self.model.code2wav(torch.from_numpy(codes.astype(np.int64)).T[None])[0, 0].numpy()


class Scores(LogitsProcessor):
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
    if isinstance(part, Video):
        return {"type": "video"}
    return {"type": "audio" if part.ndim == 1 else "image"}
