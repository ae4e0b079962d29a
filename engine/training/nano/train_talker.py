"""Train the talker: first the text encoder alone on the pronunciation lexicon, then all of it on the teacher's speech.

    python -m engine.training.nano.train_talker --work DIR --minutes 75 [--start talker.pt]

Writes DIR/talker.pt, an average of the weights, every four minutes. Losses: latent MSE + 0.1 CE of three random books,
phones of every letter, durations of letters and of stretches of letters. The previous frame's latent is hidden or
blurred at random, so that the talker relies on the text and does not drift with its own output. Every tenth utterance
is learned without its text, from the previous frames alone, as the negative of guided sampling.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from engine.training.nano.codec import BOOKS, SIZE, Codec, path, side_by_side, spread
from engine.training.nano.dataset import HELD_OUT, by_voice
from engine.training.nano.talker import Talker, places_of
from engine.worker.models.nano.voice import VOICES

REPORT_S = 240
BATCH_FRAMES = 1800
BATCH_WORDS = 32  # texts of lexicon words per batch of BATCH_FRAMES
UNTOLD = 0.1  # share of utterances learned without their text
RATE = 1.5e-3
SWIFT = (
    8  # times the rate at which the embeddings of voices learn, so that a new voice changes the shared weights little
)
Sample = dict[str, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--warmup-words", type=int, default=150, help="steps on the lexicon before any speech")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--frames", type=int, default=BATCH_FRAMES, help="approximate frames per batch")
    parser.add_argument("--start", type=Path, help="weights to continue from")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    training = Training(args.work, args.start, args.rate, args.frames)
    training.run(args.minutes * 60, 0 if args.start else args.warmup_words)


class Training:
    def __init__(self, work: Path, start: Path | None, rate: float, frames: int = BATCH_FRAMES) -> None:
        self.work, self.rate, self.batch_frames = work, rate, frames
        codecs = [Codec.load(path(work, voice)) for voice in VOICES]
        self.words = torch.load(work / "lexicon.pt")
        samples = by_voice([prepare(row) for row in torch.load(work / "talk.pt")])
        self.held_out = [own[:HELD_OUT] for own in samples]
        self.samples = [sample for own in samples for sample in own[HELD_OUT:]]
        self.net = Talker(side_by_side(codecs))
        own = [spread(codec, some[HELD_OUT : HELD_OUT + 500]) for codec, some in zip(codecs, samples, strict=True)]
        self.net.spread.copy_(torch.stack(own))
        self.rising = 50 if start else 200  # steps in which the rate rises
        if start:
            self.net.load_state_dict(torch.load(start))
        self.average = Average(self.net)
        own = {id(value) for name, value in self.net.named_parameters() if "speaker" in name}
        groups = [[value for value in self.net.parameters() if (id(value) in own) == mine] for mine in (False, True)]
        self.optimiser = torch.optim.AdamW(groups[0], rate, betas=(0.9, 0.98), weight_decay=0.02)
        self.optimiser.add_param_group({"params": groups[1], "swift": SWIFT})
        self.batches: list[list[int]] = []
        self.skipped = 0  # steps whose gradient was not finite
        size = sum(p.numel() for p in self.net.parameters()) / 1e6
        hours = sum(len(sample["codes"]) for sample in self.samples) / 90000
        print(f"{len(self.samples)} utterances, {hours:.1f} h, {size:.2f} M parameters", flush=True)

    def run(self, seconds_: float, warmup: int) -> None:
        for step in range(warmup):
            self.step(min(1, (step + 1) / 50) * self.rate, self.word_loss(64))
            if step % 50 == 0:
                print("words", step, self.word_accuracy(), flush=True)
        began, printed, step, epochs = time.monotonic(), 0.0, 0, 0
        while (elapsed := time.monotonic() - began) < seconds_:
            if not self.batches:
                self.batches, epochs = self.deal(), epochs + 1
            losses = self.losses([self.samples[i] for i in self.batches.pop()])
            words = BATCH_WORDS * self.batch_frames // BATCH_FRAMES
            total = weigh(losses) + (0.5 * self.word_loss(words) if step % 3 == 0 else 0)
            self.step(self.rate * min(1, (step + 1) / self.rising) * schedule(elapsed / seconds_), total)
            step += 1
            if elapsed - printed > REPORT_S or step == 20:
                printed = elapsed
                self.report(elapsed, step, epochs)
        self.report(seconds_, step, epochs)

    def step(self, rate: float, loss: Tensor) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("swift", 1)
        self.optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        if not torch.isfinite(norm):
            self.skipped += 1
            return
        self.optimiser.step()
        self.average.update(self.net)

    def deal(self) -> list[list[int]]:
        """An epoch of batches of about `batch_frames` frames, each of utterances of like length, in random order."""
        order = list(range(len(self.samples)))
        random.shuffle(order)
        batches = []
        for chunk in (order[i : i + 400] for i in range(0, len(order), 400)):
            chunk.sort(key=lambda i: len(self.samples[i]["codes"]))
            while chunk:
                count = max(1, self.batch_frames // len(self.samples[chunk[-1]]["codes"]))
                batches.append(chunk[-count:])
                del chunk[-count:]
        random.shuffle(batches)
        return batches

    def losses(self, samples: list[Sample], train: bool = True) -> dict[str, Tensor]:
        batch = {key: pad_sequence([sample[key] for sample in samples], True) for key in samples[0] if key != "voice"}
        voice = torch.stack([sample["voice"] for sample in samples])
        spoken = lengths_mask([len(sample["codes"]) for sample in samples])
        written = lengths_mask([len(sample["letters"]) for sample in samples])
        with half_precision(train):
            states, durations, first, second = (x.float() for x in self.net.text(batch["letters"], voice))
        out = {"phones": phone_loss(first, second, batch["labels"], written)}
        out |= duration_losses(durations, batch["seconds"], written)
        gathered = torch.gather(states, 1, batch["index"][..., None].expand(-1, -1, states.shape[-1]))
        codes = batch["codes"].long() + SIZE * voice[:, None, None]
        previous, unknown = self.feedback(codes, voice, train)
        told = (torch.rand(len(samples), 1, 1) >= UNTOLD).float() if train else torch.ones(1)
        with half_precision(train):
            x = self.net.enter(gathered * told, batch["places"] * told, previous, unknown, voice)
            x = self.net.frames(x, voice).float()
        predicted, voices = self.net.predict(x, voice), voice[:, None].expand(spoken.shape)
        real = (x[spoken], voices[spoken], predicted[spoken], batch["latent"][spoken].float(), codes[spoken])
        return out | self.code_losses(*real, train)

    def feedback(self, codes: Tensor, voice: Tensor, train: bool) -> tuple[Tensor, Tensor]:
        """The latents of the frames before, hidden (up to 60 % of an utterance) and blurred while training."""
        batch, frames, _ = codes.shape
        embedded = torch.stack([self.net.books[i][codes[..., i]] for i in range(BOOKS)]).sum(0)
        previous = F.pad(embedded, (0, 0, 1, 0))[:, :-1]
        unknown = torch.zeros(batch, frames, dtype=torch.bool)
        if train:
            blur = self.net.scale[voice][:, None, None] * 0.25 * torch.rand(batch, 1, 1)
            previous = previous + torch.randn_like(previous) * blur
            unknown = torch.rand(batch, frames) < 0.6 * torch.rand(batch, 1)
        unknown[:, 0] = True
        return previous, unknown

    def code_losses(
        self, x: Tensor, voice: Tensor, predicted: Tensor, latent: Tensor, codes: Tensor, train: bool
    ) -> dict[str, Tensor]:
        """x [N, width], voice [N], predicted and true latent [N, 64], codes [N, 8] of the real frames only."""
        out = {"mse": ((predicted - latent) / self.net.scale[voice][:, None]).pow(2).mean()}
        chosen, entropies = torch.zeros_like(latent), []
        books = {0, *random.sample(range(1, BOOKS), 2)} if train else set(range(BOOKS))
        for book in range(BOOKS):
            if book in books:
                scores = self.net.scores(book, self.net.target(x, voice, book, predicted, chosen), voice)
                entropies.append(F.cross_entropy(scores, codes[:, book]))
            chosen = chosen + self.net.books[book][codes[:, book]]
        return out | {"ce": torch.stack(entropies).sum()}

    def word_loss(self, count: int) -> Tensor:
        first, second, labels, mask = self.read_words(count)
        return phone_loss(first, second, labels, mask)

    def read_words(self, count: int, offset: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`count` texts of five words by any voice, frequent ones more often. Every 50th word is kept for
        word_accuracy (offset 0).
        """
        texts, labels = [], []
        for _ in range(count):
            letters, classes = [0], [(1, 0)]
            for _ in range(5):
                rank = min(int(random.expovariate(1 / 15000)), len(self.words) - 50) // 50 * 50
                ids, phones = self.words[rank + (random.randrange(1, 50) if offset else 0)]
                letters, classes = letters + ids + [1], classes + phones + [(0, 0)]
            texts.append(torch.tensor(letters))
            labels.append(torch.tensor(classes))
        mask = lengths_mask([len(text) for text in texts])
        mask &= pad_sequence(texts, True) > 1
        with half_precision(offset > 0):
            _, _, first, second = self.net.text(pad_sequence(texts, True), torch.randint(len(VOICES), (count,)))
        return first.float(), second.float(), pad_sequence(labels, True), mask

    @torch.no_grad()
    def word_accuracy(self) -> float:
        """Share of letters of held-out words whose phones are both right."""
        first, second, labels, mask = self.read_words(64, offset=0)
        right = (first.argmax(-1) == labels[..., 0]) & (second.argmax(-1) == labels[..., 1])
        return round(float(right[mask].float().mean()), 4)

    def report(self, elapsed: float, step: int, epochs: int) -> None:
        """Losses of the averaged weights on held-out utterances of each voice; saves them."""
        with self.average.applied(self.net), torch.no_grad():
            print(f"{elapsed / 60:.1f} min, step {step}, epoch {epochs}, letters", self.word_accuracy(), flush=True)
            for voice, held_out in zip(VOICES, self.held_out, strict=True):
                losses = self.losses(held_out, train=False)
                print(f"  {voice}", {key: round(float(value), 4) for key, value in losses.items()}, flush=True)
            torch.save(self.net.state_dict(), self.work / "talker.part")
        (self.work / "talker.part").replace(self.work / "talker.pt")


class Average:
    """Exponential average of the weights; its horizon grows with the number of steps."""

    def __init__(self, net: nn.Module, horizon: int = 600) -> None:
        self.horizon, self.count = horizon, 0
        self.weights = [p.detach().clone() for p in net.parameters()]

    def update(self, net: nn.Module) -> None:
        self.count += 1
        share = 1 / min(self.horizon, 1 + self.count / 5)
        now = [p.detach() for p in net.parameters()]
        torch._foreach_lerp_(self.weights, now, share)  # pyright: ignore[reportPrivateImportUsage]

    def applied(self, net: nn.Module) -> _Swap:
        return _Swap(net, self.weights)


class _Swap:
    """Exchange a network's weights for others within a `with` block."""

    def __init__(self, net: nn.Module, weights: list[Tensor]) -> None:
        self.net, self.weights = net, weights

    def _exchange(self) -> None:
        for parameter, weight in zip(self.net.parameters(), self.weights, strict=True):
            parameter.data, weight.data = weight.data, parameter.data

    def __enter__(self) -> None:
        self.net.eval()
        self._exchange()

    def __exit__(self, *_: object) -> None:
        self._exchange()
        self.net.train()


def half_precision(on: bool) -> torch.autocast:
    """Use bfloat16 for the products of the two trunks where the processor supports it.

    It is a third faster there, and many times slower elsewhere. The output layer stays float32.
    """
    has_it = torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.autocast("cpu", torch.bfloat16, enabled=on and bool(has_it))


def schedule(done: float) -> float:
    """Flat for a third of the time, then a cosine down to 2 %."""
    falling = max(0.0, (done - 0.3) / 0.7)
    return 0.02 + 0.98 * 0.5 * (1 + float(torch.cos(torch.tensor(falling * torch.pi))))


def weigh(losses: dict[str, Tensor]) -> Tensor:
    return (
        0.5 * (losses["phones"] + losses["duration"] + losses["stretch"] + losses["silent"])
        + losses["mse"]
        + 0.1 * losses["ce"]
    )


def phone_loss(first: Tensor, second: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return F.cross_entropy(first[mask], labels[..., 0][mask]) + F.cross_entropy(second[mask], labels[..., 1][mask])


def duration_losses(durations: Tensor, true_s: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Log duration of spoken letters, which letters are silent, and the length of every seven letters in a row."""
    spoken = (true_s > 0.001) & mask
    logs = (durations[..., 0] - torch.log(true_s.clamp(min=0.005)))[spoken].abs().mean()
    silent = F.binary_cross_entropy_with_logits(durations[..., 1][mask], spoken[mask].float())
    soft = torch.exp(durations[..., 0].clamp(max=0)) * torch.sigmoid(durations[..., 1]) * mask
    stretches = [F.avg_pool1d(x[:, None], 7, 1, 3)[:, 0] for x in (soft, true_s * mask)]
    stretch = ((stretches[0] - stretches[1]).abs() / (stretches[1] + 0.02))[mask].mean()
    return {"duration": logs, "silent": silent, "stretch": stretch}


def lengths_mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def prepare(row: dict) -> Sample:
    index, places = places_of(row["ends_s"], len(row["codes"]))
    lengths_s = torch.diff(row["ends_s"], prepend=torch.zeros(1))
    keep = {key: row[key] for key in ("letters", "labels", "codes", "latent")}
    keep["voice"] = torch.tensor(row["voice"])
    return keep | {"seconds": lengths_s, "index": index, "places": places}


if __name__ == "__main__":
    main()
