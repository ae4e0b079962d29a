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
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor
from torch.nn import functional as F

from engine.training.nano.answers import Reply
from engine.training.nano.dialogues import Dialogue, stream
from engine.training.nano.thinker import Shape, Thinker, export
from engine.training.nano.turns import Turn
from engine.worker.models.nano import own
from engine.worker.models.nano.plain import normalise
from engine.worker.models.nano.sayings import SAYINGS
from engine.worker.models.nano.tokens import (
    CONTEXT,
    END,
    KNOWN,
    PRIVATE,
    SAYING,
    TO,
    WORD,
    call_ids,
    result_ids,
    said_ids,
    shown,
    tools_ids,
    user_ids,
)

POOL = 2048
"""Number of dialogues that are sorted by length together, to save padding."""
NO_LOSS = -100
SPELLED, MISTYPED = 0.06, 0.02
"""Probabilities that a known word is given by its letters, and that a word is mistyped; the meaning stays the same."""
UNTOLD = 0.15
"""Probability that only the text of an earlier answer is given, as of one that was interrupted."""
_HALVES = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""Only with AVX-512 bfloat16; otherwise bfloat16 takes three times as long as float32."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=85)
    parser.add_argument("--tokens", type=int, default=3072, help="tokens per step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of Muon; AdamW uses a tenth")
    parser.add_argument("--out", type=Path, default=Path("data/thinker"), help="folder for checkpoints and exports")
    parser.add_argument(
        "--eager", action="store_true", help="do not compile the model (compiling takes minutes on a busy machine)"
    )
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--from-onnx", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    model = load(args.resume or args.from_onnx)
    train(model, batches(args.seed, args.tokens), args.minutes * 60, args.rate, args.out, not args.eager)


def load(path: Path | None) -> Thinker:
    """Return a new network, or that of a checkpoint (.pt) or an export (.onnx)."""
    if path is None:
        return Thinker(Shape())
    if path.suffix == ".onnx":
        return from_onnx(path)
    saved = torch.load(path, weights_only=True)
    model = Thinker(Shape(**saved["shape"]))
    model.load_state_dict(saved["weights"])
    return model


def from_onnx(path: Path) -> Thinker:
    """Return the network of an export, whose initializers have the names of the weights."""
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
    taught = targets != NO_LOSS
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=_HALVES):
        logits = model.train_logits(ids, taught)
    return F.cross_entropy(logits.float(), targets[taught])


def save(model: Thinker, out: Path) -> None:
    """Write a checkpoint and an export, each atomically."""
    torch.save({"shape": asdict(model.shape), "weights": model.state_dict()}, out / "new.pt")
    (out / "new.pt").replace(out / "thinker.pt")
    export(copy.deepcopy(model), out / "new.onnx")
    (out / "new.onnx").replace(out / "thinker.onnx")


def batches(seed: int, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ids and targets, int64 [B, T] with B x T about ``tokens``, grouping dialogues of similar length."""
    rng = np.random.default_rng(seed)
    slips = random.Random(seed)
    dialogues = stream(seed)
    while True:
        rows = sorted((encode(d, slips) for d in itertools.islice(dialogues, POOL)), key=lambda row: len(row[0]))
        groups: list[list[tuple[list[int], list[int]]]] = [[]]
        for row in rows:
            if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > tokens:
                groups.append([])
            groups[-1].append(row)
        for i in rng.permutation(len(groups)):
            yield _padded(groups[i])


def encode(dialogue: Dialogue, slips: random.Random | None = None) -> tuple[list[int], list[int]]:
    """Return ids and, for each, the id to predict after it (NO_LOSS in the text of the user or a tool)."""
    ids: list[int] = []
    taught: list[bool] = []
    view = own.View()

    def add(part: list[int], learn: bool) -> None:
        ids.extend(part)
        taught.extend([learn] * len(part))

    add(tools_ids(dialogue[0].tools), learn=False)
    for n, turn in enumerate(dialogue):
        text, spelled = (turn.request.text, frozenset[int]()) if slips is None else slipped(turn, slips)
        add(user_ids(text, turn.scene is not None, spelled), learn=False)
        if turn.called:
            whole = slips is None or slips.random() < 0.5  # a call comes back without its arguments
            add([*call_ids(turn.called if whole else turn.called.split(" ")[0]), END], learn=whole)
            add(result_ids(turn.result), learn=False)
        view = seen(view, turn)
        said = answer_of(turn, view)
        if slips and n + 1 < len(dialogue) and slips.random() < UNTOLD and said:
            add([*said_ids(_cut(said, slips)), END], learn=False)
        else:
            add([*reply_ids(turn.reply), END], learn=True)
        view = replace(view, said=(*view.said, said))
    ids, taught = ids[:CONTEXT], taught[:CONTEXT]
    return ids[:-1], [i if learn else NO_LOSS for i, learn in zip(ids[1:], taught[1:], strict=True)]


def reply_ids(reply: Reply) -> list[int]:
    """Return the thinker's output: a call, a fixed saying, or marks of the user's words."""
    if reply.call:
        return call_ids(reply.call)
    if reply.text in SAYINGS:
        return [SAYING + SAYINGS.index(reply.text)]
    marks = [WORD + ord(mark) - PRIVATE for mark in reply.text.split()]
    return marks if len(marks) == 1 else [marks[0], TO, *(marks[-1:] if marks[-1] < KNOWN else [])]


def seen(view: own.View, turn: Turn) -> own.View:
    """Return the input of nano's tools for this turn."""
    scenes = view.scenes if turn.scene is None else (*view.scenes, turn.scene)
    return replace(view, scenes=scenes, skill=turn.called.split(" ")[0], returned=turn.result)


def answer_of(turn: Turn, view: own.View) -> str:
    """Return the spoken answer of a turn, or "" if the client's tool gives it."""
    words = normalise(turn.request.text).split()
    if turn.reply.call:
        marked = [words[ord(w[0]) - PRIVATE] if ord(w[0]) >= PRIVATE else w for w in turn.reply.call.split()]
        return own.answer(" ".join(marked), view) or ""
    return shown(reply_ids(turn.reply), words)


def slipped(turn: Turn, rng: random.Random) -> tuple[str, frozenset[int]]:
    """Return the turn's text with typing errors, except in words that are referred to, and the words that are
    spelled.
    """
    words = normalise(turn.request.text).split()
    written = turn.reply.text + turn.reply.call + turn.called
    for n, word in enumerate(words):
        if rng.random() < MISTYPED and len(word) > 3 and word.isalpha() and chr(PRIVATE + n) not in written:
            words[n] = _mistyped(word, rng)
    text = " ".join(words)
    return text, frozenset(n for n in range(len(normalise(text).split())) if rng.random() < SPELLED)


def _mistyped(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) - 1)
    a, b = word[at], word[at + 1]
    return word[:at] + rng.choice((b + a, b, a + a + b, a + rng.choice("abcdefghijklmnopqrstuvwxyz"))) + word[at + 2 :]


def _cut(text: str, rng: random.Random) -> str:
    words = text.split()
    return " ".join(words[: rng.randint(1, len(words))]) if rng.random() < 0.5 else text


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
