"""Train the thinker on templated dialogues: ``python -m engine.training.nano.train_thinker --minutes 85``.

Dialogues are drawn endlessly and never seen twice. Hidden matrices are trained with Muon (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon/), the rest with AdamW; the weights that are kept are an exponential moving
average. The rate falls to zero over the wall-clock budget. A checkpoint and an ONNX export are written every few
minutes; ``--resume`` continues from a checkpoint, ``--from-onnx`` from committed weights.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor
from torch.nn import functional as F

from engine.training.nano.answers import SCRATCH as SCRATCH_CHAR
from engine.training.nano.answers import WORD as WORD_CHAR
from engine.training.nano.dialogues import Dialogue, stream
from engine.training.nano.thinker import Shape, Thinker, export
from engine.worker.models.nano.thinker import (
    BOT,
    CONTEXT,
    END,
    RESULT,
    SCRATCH,
    SPELL,
    TOOL,
    WORDS,
    phrase_ids,
    text_ids,
    tools_ids,
    user_ids,
)

POOL = 4096
"""Dialogues that are sorted by length together, so that a batch wastes little on padding."""
NO_LOSS = -100
LAST_MARK = WORD_CHAR + 8 * WORDS
_HALVES = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""Without AVX-512 bfloat16 takes three times as long as float32."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=85)
    parser.add_argument("--tokens", type=int, default=3072, help="per step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.02, help="of Muon; AdamW takes a tenth")
    parser.add_argument("--out", type=Path, default=Path("data/thinker"), help="folder of checkpoints and exports")
    parser.add_argument("--eager", action="store_true", help="do not compile: that takes minutes on a busy machine")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--from-onnx", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    model = load(args.resume or args.from_onnx)
    train(model, batches(args.seed, args.tokens), args.minutes * 60, args.rate, args.out, not args.eager)


def load(path: Path | None) -> Thinker:
    """A new network, or the one of a checkpoint (.pt) or an export (.onnx)."""
    if path is None:
        return Thinker(Shape())
    if path.suffix == ".onnx":
        return grown(from_onnx(path))
    saved = torch.load(path, weights_only=True)
    model = Thinker(Shape(**saved["shape"]))
    model.load_state_dict(saved["weights"])
    return grown(model)


def grown(old: Thinker, shape: Shape | None = None) -> Thinker:
    """The same network in a shape with more layers and marks. Width and heads must be the same.

    A new layer adds nothing. A new mark is a random mixture of letters, in the embedding as in the head: what copies
    letters then copies it as well.
    """
    new = Thinker(shape or Shape())
    letters = torch.tensor([*map(ord, "abcdefghijklmnopqrstuvwxyz0123456789")])
    with torch.no_grad():
        for name, weight in old.named_parameters():
            new.get_parameter(name)[: len(weight)] = weight
        first, count = old.shape.vocabulary, new.shape.vocabulary - old.shape.vocabulary
        mixture = torch.randn(count, len(letters)) / len(letters) ** 0.5
        for table in (new.embed.weight, new.head.weight):
            known = table[letters]
            table[first:] = known.mean(0) + mixture @ (known - known.mean(0))
    return new


def from_onnx(path: Path) -> Thinker:
    """The network of an export; its weights carry their names."""
    graph = onnx.load(path)
    model = Thinker(Shape(**{entry.key: int(entry.value) for entry in graph.metadata_props}))
    arrays = {t.name.removesuffix(".half"): numpy_helper.to_array(t) for t in graph.graph.initializer}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(arrays[name].astype(np.float32)))
    return model


def train(
    model: Thinker,
    data: Iterator[tuple[Tensor, Tensor]],
    budget_s: float,
    rate: float,
    out: Path,
    compiled: bool = True,
) -> None:
    optimizers = make_optimizers(model, rate)
    average = copy.deepcopy(model)
    loss_of = torch.compile(_loss, dynamic=True) if compiled else _loss
    start = last_report = last_save = time.monotonic()
    losses: list[float] = []
    seen = 0
    for step in itertools.count():
        done = (time.monotonic() - start) / budget_s
        if done >= 1:
            break
        _set_rates(optimizers, min((step + 1) / 100, 1.0, max((1 - done) / 0.6, 0.01)))
        ids, targets = next(data)
        loss = loss_of(model, ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        _follow(average, model, min(0.995, step / (step + 20)))
        losses.append(loss.item())
        seen += ids.numel()
        now = time.monotonic()
        if now - last_report > 30:
            told = f"{now - start:6.0f} s  step {step}  {seen / 1e6:.2f} M tokens  loss {np.mean(losses):.4f}"
            print(told, flush=True)
            losses, last_report = [], now
        if now - last_save > 240:
            save(average, out)
            last_save = now
    save(average, out)


def _loss(model: Thinker, ids: Tensor, targets: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=_HALVES):
        logits = model.train_logits(ids)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=NO_LOSS)


def save(model: Thinker, out: Path) -> None:
    """A checkpoint and an export, each in place at once or not at all."""
    torch.save({"shape": asdict(model.shape), "weights": model.state_dict()}, out / "new.pt")
    (out / "new.pt").replace(out / "thinker.pt")
    export(copy.deepcopy(model), out / "new.onnx")
    (out / "new.onnx").replace(out / "thinker.onnx")


def batches(seed: int, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and targets [B, T] int64, B x T about ``tokens``, dialogues of like length together."""
    rng = np.random.default_rng(seed)
    dialogues = stream(seed)
    while True:
        rows = sorted((encode(d) for d in itertools.islice(dialogues, POOL)), key=lambda row: len(row[0]))
        groups: list[list[tuple[list[int], list[int]]]] = [[]]
        for row in rows:
            if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > tokens:
                groups.append([])
            groups[-1].append(row)
        for i in rng.permutation(len(groups)):
            yield _padded(groups[i])


def encode(dialogue: Dialogue) -> tuple[list[int], list[int]]:
    """Ids, and for each the id to be predicted after it (NO_LOSS where the user or a tool speaks)."""
    ids: list[int] = []
    taught: list[bool] = []

    def add(part: list[int], learn: bool) -> None:
        ids.extend(part)
        taught.extend([learn] * len(part))

    add(tools_ids(dialogue[0].tools), learn=False)
    for turn in dialogue:
        add(user_ids(turn.request.text, turn.scene), learn=False)
        name = turn.tool.split(" ")[0]
        if turn.tool and not turn.answer:
            add([TOOL, *answer_ids(turn.tool), END], learn=True)
            break
        if turn.tool:  # a call comes back without its arguments
            add([TOOL, *phrase_ids(name), END], learn=name == turn.tool)
            add([RESULT, *text_ids(turn.result), BOT], learn=False)
        add([*answer_ids(turn.answer), END], learn=True)
    ids, taught = ids[:CONTEXT], taught[:CONTEXT]
    return ids[:-1], [i if learn else NO_LOSS for i, learn in zip(ids[1:], taught[1:], strict=True)]


def answer_ids(answer: str) -> list[int]:
    """An answer's ids: private-use characters become the marks, text phrases and characters; a spelled word letters."""
    ids: list[int] = []
    for part in re.split(f"([{chr(SCRATCH_CHAR)}-{chr(LAST_MARK)}])", answer):
        if part and not part.isascii():
            ids.append(SCRATCH + ord(part) - SCRATCH_CHAR)
        else:
            ids += text_ids(part) if ids[-1:] == [SPELL] else phrase_ids(part)
    return ids


def _padded(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    length = -(-max(len(ids) for ids, _ in rows) // 8) * 8
    ids = torch.zeros(len(rows), length, dtype=torch.int64)
    targets = torch.full((len(rows), length), NO_LOSS)
    for i, (row, goal) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        targets[i, : len(goal)] = torch.tensor(goal)
    return ids, targets


def make_optimizers(model: Thinker, rate: float) -> Sequence[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embedding, head, norms and taps; ``base`` keeps each group's rate."""
    hidden = [p for p in model.layers.parameters() if p.ndim == 2 and p.shape[0] > model.shape.taps]
    chosen = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    adam = torch.optim.AdamW(rest, lr=rate / 10, betas=(0.9, 0.98), weight_decay=0.0)
    made = (Muon(hidden, rate), adam)
    for optimizer in made:
        for group in optimizer.param_groups:
            group["base"] = group["lr"]
    return made


def _set_rates(optimizers: Sequence[torch.optim.Optimizer], scale: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * scale


@torch.no_grad()
def _follow(average: Thinker, model: Thinker, keep: float) -> None:
    for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
        slow.lerp_(fast, 1 - keep)


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalized by five Newton-Schulz steps."""

    def __init__(self, params: Sequence[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(buffer, group["momentum"]))
                p.mul_(1 - group["lr"] * 0.01)
                p.add_(update, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly: singular values end up between 0.7 and 1.2."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


if __name__ == "__main__":
    main()
