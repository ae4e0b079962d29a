"""nano's codec: 25 frames/s and 8 codebooks of 512 entries, from PCA and residual k-means without a network.

A frame of 40 ms is 4 x (80 log-mel, log F0, voiced) = 328 values, projected to 64 and quantised in 8 steps. Decoding is
a sum of code vectors and the inverse projection, so frames are usable before code2wav is trained.

    python -m engine.training.nano.codec --work DIR --voice rms      fits a codec to DIR/rms and writes it there

Each voice has its own codec. Other voices' codecs are rotated towards the first one's latents, and their codebooks
start from the first one's, because the networks are shared.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.training.nano.features import MEAN_LOG_F0, MELS, Speech
from engine.training.nano.utterances import utterances
from engine.worker.models.nano.voice import VOICES

BOOKS = 8
SIZE = 512
LATENT = 64
STACK = 4  # 10 ms frames per codec frame
F0_SCALE = 6.0  # weight of log F0 relative to a mel band in units of its deviation
VOICED_SCALE = 3.0


@dataclass(frozen=True, slots=True)
class Codec:
    """The codec of one voice.

    mel_mean, mel_scale: [80]; mean: [328]; basis: [328, 64], orthonormal columns; books: [8, 512, 64].
    """

    mel_mean: Tensor
    mel_scale: Tensor
    mean: Tensor
    basis: Tensor
    books: Tensor

    @classmethod
    def load(cls, path: Path) -> Codec:
        tensors = load_file(path)
        return cls(*(tensors[name].float() for name in cls.__slots__))

    def save(self, path: Path) -> None:
        save_file({name: getattr(self, name).contiguous() for name in self.__slots__}, path)

    def latent(self, speech: Speech) -> Tensor:
        """Return the latents [T, 64] before quantisation."""
        return (stack(speech, self.mel_mean, self.mel_scale) - self.mean) @ self.basis

    def quantise(self, latent: Tensor) -> Tensor:
        """Quantise latents [T, 64] greedily to int64 [T, 8]."""
        rest, codes = latent, []
        for book in self.books:
            codes.append(nearest(rest, book))
            rest = rest - book[codes[-1]]
        return torch.stack(codes, 1)

    def embed(self, codes: Tensor) -> Tensor:
        """Map codes int64 [..., 8] to the sum of their vectors [..., 64]."""
        return torch.stack([self.books[i][codes[..., i]] for i in range(BOOKS)]).sum(0)


def stack(speech: Speech, mel_mean: Tensor, mel_scale: Tensor) -> Tensor:
    """Return the stacked frames [T, 328]."""
    parts = (
        (speech.mel - mel_mean) / mel_scale,
        ((speech.log_f0 - MEAN_LOG_F0) * F0_SCALE)[:, None],
        ((speech.voiced - 0.5) * VOICED_SCALE)[:, None],
    )
    return torch.cat(parts, 1).reshape(-1, STACK * (MELS + 2))


def nearest(points: Tensor, book: Tensor) -> Tensor:
    return (book.pow(2).sum(1) - 2 * points @ book.T).argmin(1)


def fit(speeches: list[Speech], like: Codec | None = None, points: int = 150_000, rounds: int = 14) -> Codec:
    """Fit a codec. Bands above 3.3 kHz count less, down to 0.45, because hearing and recognition are coarser there.

    ``like`` is the first voice's codec, for another voice.
    """
    mel = torch.cat([speech.mel for speech in speeches])
    weight = torch.ones(MELS)
    weight[48:] = torch.linspace(1, 0.45, MELS - 48)
    mel_mean, mel_scale = mel.mean(0), 1.5 * mel.std(0).mean() / weight
    frames = torch.cat([stack(speech, mel_mean, mel_scale) for speech in speeches])
    mean = frames.mean(0)
    centred = frames - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(frames))
    basis = vectors[:, -LATENT:]
    print(f"pca keeps {float(values[-LATENT:].sum() / values.sum()):.4f} of {len(frames)} frames")
    if like is not None:
        basis = basis @ turn(basis, like.basis)
    latent = centred @ basis
    rest = latent[torch.randperm(len(latent))[:points]]
    power, books = rest.pow(2).sum(1).mean(), []
    for index in range(BOOKS):
        start = rest[torch.randperm(len(rest))[:SIZE]] if like is None else like.books[index]
        books.append(k_means(rest, start, rounds))
        rest = rest - books[-1][nearest(rest, books[-1])]
        print(f"book {index}: residual {float(rest.pow(2).sum(1).mean() / power):.4f}", flush=True)
    return Codec(mel_mean, mel_scale, mean, basis, torch.stack(books))


def turn(basis: Tensor, towards: Tensor) -> Tensor:
    """Return the orthogonal [64, 64] matrix that aligns one basis with another (orthogonal Procrustes problem)."""
    left, _, right = torch.linalg.svd(basis.T @ towards)
    return left @ right


def k_means(points: Tensor, start: Tensor, rounds: int) -> Tensor:
    """Return a codebook [SIZE, d]; an empty cell restarts at a random point."""
    book = start.clone()
    for _ in range(rounds):
        index = nearest(points, book)
        members = torch.bincount(index, minlength=SIZE)[:, None]
        sums = torch.zeros_like(book).index_add_(0, index, points)
        fresh = points[torch.randint(0, len(points), (SIZE,))]
        book = torch.where(members > 0, sums / members.clamp(min=1), fresh)
    return book


def path(work: Path, voice: str) -> Path:
    """Return the path of a voice's codec."""
    return work / voice / "codec.safetensors"


def side_by_side(codecs: Sequence[Codec]) -> Tensor:
    """Return the codebooks of all voices, concatenated as in the networks, [8, voices x 512, 64]."""
    return torch.cat([codec.books for codec in codecs], 1)


def spread(codec: Codec, samples: Sequence[dict[str, Tensor]]) -> Tensor:
    """Return the mean squared residual of latents after each book, with a floor for the talker's uncertainty, [8]."""
    rest, out = torch.cat([sample["latent"].float() for sample in samples]), []
    codes = torch.cat([sample["codes"].long() for sample in samples])
    for book in range(BOOKS):
        rest = rest - codec.books[book][codes[:, book]]
        out.append(rest.pow(2).mean() + 0.12 * codec.books[0].std() ** 2)
    return torch.stack(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    parser.add_argument("--count", type=int, default=2500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen = utterances(args.work, args.voice)
    speeches = [utterance.speech() for utterance in chosen[:: max(1, len(chosen) // args.count)]]
    like = None if args.voice == VOICES[0] else Codec.load(path(args.work, VOICES[0]))
    fit(speeches, like).save(path(args.work, args.voice))


if __name__ == "__main__":
    main()
