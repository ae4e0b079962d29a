"""The talker's networks: letters -> states and durations -> one 40 ms frame of codes after the other. Knows no
files, no training.

Durations are predicted for every letter, so the alignment is hard and monotonic: the talker can neither skip nor
loop. A frame regresses a latent and quantises it book by book; the code books of the codec are the output layer.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.training.nano.align import LETTERS, PHONES

FRAME_S = 0.04
WINDOW = 32  # frames a step attends to, itself included: 1.3 s
PLACES = 6  # features of a frame's place within its letter
REACH = 10  # letters the text encoder looks to either side
LAYERS, WIDTH, HEADS = 4, 192, 4
LATENT = 64


class TextEncoder(nn.Module):
    """Five residual convolutions over letters: 5 x 2 letters of context on either side."""

    def __init__(self, width: int = 192, depth: int = 5) -> None:
        super().__init__()
        self.letter = nn.Embedding(len(LETTERS), width)
        self.blocks = nn.ModuleList(LetterBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.first_phone = nn.Linear(width, len(PHONES) + 1)
        self.second_phone = nn.Linear(width, len(PHONES) + 1)
        self.duration = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, letters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """int64 [B, L] -> states [B, L, width]; (log seconds, logit that the letter is spoken) [B, L, 2]; phone
        logits, twice.
        """
        x = self.letter(letters)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x, self.duration(x), self.first_phone(x), self.second_phone(x)


class LetterBlock(nn.Module):
    """ConvNeXt block, not causal."""

    def __init__(self, width: int, kernel: int = 5, expand: int = 2) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width, padding=kernel // 2)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expand * width)
        self.down = nn.Linear(expand * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        return x + self.gain * self.down(F.gelu(self.up(y)))


class Block(nn.Module):
    """Pre-norm attention with rotary positions, then an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(
        self, x: Tensor, angles: Tensor, past: tuple[Tensor, Tensor] | None, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, T, width]; angles [B or 1, 1, T, head / 2]; past keys and values [B, heads, P, head]; mask adds to
        the scores.

        Returns the new x and this step's keys (rotated) and values, [B, heads, T, head].
        """
        batch, steps, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, angles), rotate(k, angles)
        keys, values = (k, v) if past is None else (torch.cat([past[0], k], 2), torch.cat([past[1], v], 2))
        scores = q @ keys.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask
        y = torch.softmax(scores, -1) @ values
        x = x + self.out(y.transpose(1, 2).reshape(batch, steps, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), k, v


def rotary_angles(positions: Tensor, head: int) -> Tensor:
    """[...] positions -> [..., head / 2]."""
    return positions[..., None].float() * 10000 ** (-torch.arange(0, head, 2) / head)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Talker(nn.Module):
    """books: the codec's [8, 512, 64]; fixed."""

    books: Tensor
    scale: Tensor
    spread: Tensor

    def __init__(self, books: Tensor, width: int = WIDTH, depth: int = LAYERS, heads: int = HEADS) -> None:
        super().__init__()
        self.text = TextEncoder()
        self.register_buffer("books", books)
        self.register_buffer("scale", books[0].std())
        self.register_buffer("spread", torch.ones(len(books)))  # expected squared distance to each book's best vector
        self.condition = nn.Linear(self.text.norm.normalized_shape[0] + PLACES, width)
        self.feedback = nn.Linear(LATENT, width)
        self.start = nn.Parameter(torch.zeros(width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.latent = nn.Linear(width, LATENT)
        self.refine = nn.ModuleList(
            nn.Sequential(nn.Linear(width + LATENT, 128), nn.GELU(), nn.Linear(128, LATENT))
            for _ in range(len(books) - 1)
        )
        self.sharpness = nn.Parameter(torch.zeros(len(books)))

    def enter(self, states: Tensor, places: Tensor, previous: Tensor, unknown: Tensor) -> Tensor:
        """States of the letters being spoken [B, T, 192], their places [B, T, 6], the latent of the frame before [B,
        T, 64] -> [B, T, width]. unknown [B, T]: the frame before is not given."""
        before = torch.where(unknown[..., None], self.start, self.feedback(previous / self.scale))
        return self.condition(torch.cat([states, places], -1)) + before

    def frames(self, x: Tensor) -> Tensor:
        """All frames of a batch at once, for training: [B, T, width] -> [B, T, width]."""
        steps = torch.arange(x.shape[1])
        distance = steps[:, None] - steps
        mask = torch.where((distance >= 0) & (distance < WINDOW), 0.0, -1e9)
        angles = rotary_angles(steps, x.shape[2] // cast(Block, self.blocks[0]).heads)[None, None]
        for block in self.blocks:
            x, _, _ = block(x, angles, None, mask)
        return self.norm(x)

    def target(self, x: Tensor, book: int, predicted: Tensor, chosen: Tensor) -> Tensor:
        """Where the next code vector should lie: what the chosen books leave of the prediction, corrected by a small
        net.
        """
        if book == 0:
            return predicted
        return predicted - chosen + self.refine[book - 1](torch.cat([x, chosen / self.scale], -1)) * self.scale

    def scores(self, book: int, target: Tensor) -> Tensor:
        """Logits of a book's 512 vectors: negative squared distances to the target, [..., 64] -> [..., 512]."""
        vectors = self.books[book]
        distance = vectors.pow(2).sum(1) - 2 * target @ vectors.T
        return -distance * torch.exp(self.sharpness[book]) / (2 * self.spread[book])

    def pick(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Greedy codes int64 [..., 8] and their latent [..., 64]."""
        predicted = self.latent(x) * self.scale
        chosen, codes = torch.zeros_like(predicted), []
        for book in range(len(self.books)):
            code = self.scores(book, self.target(x, book, predicted, chosen)).argmax(-1)
            codes.append(code)
            chosen = chosen + F.embedding(code, self.books[book])
        return torch.stack(codes, -1), chosen


class TalkerStep(nn.Module):
    """One frame for B requests that stand at different places, as it is exported.

    Past keys and values arrive as gathered rings of WINDOW - 1 frames in any order; the new ones are returned for
    the host to store at `position % (WINDOW - 1)`.
    """

    def __init__(self, talker: Talker) -> None:
        super().__init__()
        self.talker = talker

    def forward(
        self, states: Tensor, places: Tensor, previous: Tensor, position: Tensor, ring: Tensor, partner: Tensor,
        guidance: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """states [B, 192], places [B, 6], previous latent [B, 64], position int64 [B] counted from 0 in the request,
        ring [B, layers, 2, heads, WINDOW - 1, head], partner int64 [B]: the row that a row is guided away from (itself
        if it is not), guidance [B]: how far -> codes int64 [B, 8], latent [B, 64], new keys and values
        [B, layers, 2, heads, head]. The row of a text that is not told has states and places of 0."""
        net = self.talker
        x = net.enter(states[:, None], places[:, None], previous[:, None], (position == 0)[:, None])
        angles = rotary_angles(position, ring.shape[-1])[:, None, None]
        filled = torch.arange(WINDOW) < torch.where(position < WINDOW - 1, position, WINDOW - 1)[:, None]
        present = filled | (torch.arange(WINDOW) == WINDOW - 1)  # the frame itself comes last
        mask = torch.where(present, 0.0, -1e9)[:, None, None]
        new = []
        for index, block in enumerate(net.blocks):
            x, k, v = block(x, angles, (ring[:, index, 0], ring[:, index, 1]), mask)
            new.append(torch.stack([k[:, :, 0], v[:, :, 0]], 1))
        codes, latent = net.pick(guided(net.norm(x)[:, 0], partner, guidance))
        return codes, latent, torch.stack(new, 1)


def guided(x: Tensor, partner: Tensor, guidance: Tensor) -> Tensor:
    """Classifier-free guidance (arXiv:2207.12598) of the trunk's output [B, width]; the predicted latent is linear in
    it. A row that is its own partner stays as it is, to the bit.
    """
    other = x[partner]
    return other + guidance[:, None] * (x - other)


def seconds(duration: Tensor) -> Tensor:
    """The encoder's two duration outputs [..., 2] -> seconds [...]; a letter more likely silent gets 0."""
    return torch.where(duration[..., 1] > 0, torch.exp(duration[..., 0]), 0.0)


def places_of(ends_s: Tensor, frames: int) -> tuple[Tensor, Tensor]:
    """Which letter frames 0.. speak, int64 [T], and where in it they stand, [T, 6].

    ends_s [L]: end time of every letter. A frame speaks the letter at its middle.
    """
    begins = F.pad(ends_s[:-1], (1, 0))
    middle = (torch.arange(frames) + 0.5) * FRAME_S
    index = torch.searchsorted(ends_s, middle).clamp(max=len(ends_s) - 1)
    begin, end = begins[index], ends_s[index]
    length = (end - begin).clamp(min=0.005)
    share = ((middle - begin) / length).clamp(0, 1)
    since, left = ((middle - begin) * 8).clamp(0, 3), ((end - middle) * 8).clamp(-1, 3)
    return index, torch.stack([share, 1 - share, length.clamp(max=0.5) * 4, since, left, (share - 0.5).abs()], -1)
