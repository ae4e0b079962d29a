"""The talker's networks: letters -> states and durations -> one 40 ms frame of codes after the other.

All voices share them. A voice is a number: a row of each embedding, which is added before every block, and as it has
code books of its own, linear maps of its own from latents and to them. Codes within these networks count through the
books of all voices, which lie one after the other.

Durations are predicted for every letter, so the alignment is hard and monotonic: the talker can neither skip nor
loop. A frame regresses a latent and quantises it book by book; the code books of the codec are the output layer.
"""

from __future__ import annotations

from collections.abc import Sequence
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
SIZE = 512  # of a code book
NEVER = -3e4  # of a score; float16 holds it


class TextEncoder(nn.Module):
    """Five residual convolutions over letters: 5 x 2 letters of context on either side."""

    def __init__(self, voices: int, width: int = 192, depth: int = 5) -> None:
        super().__init__()
        self.letter = nn.Embedding(len(LETTERS), width)
        self.speaker = speakers(voices, depth, width)
        self.blocks = nn.ModuleList(LetterBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.first_phone = nn.Linear(width, len(PHONES) + 1)
        self.second_phone = nn.Linear(width, len(PHONES) + 1)
        self.duration = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, letters: Tensor, voice: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """int64 [B, L], [B] -> states [B, L, width]; (log seconds, logit that the letter is spoken) [B, L, 2]; phone
        logits, twice.
        """
        x = self.letter(letters)
        for block, own in zip(self.blocks, self.speaker(voice).chunk(len(self.blocks), -1), strict=True):
            x = block(x + own[:, None])
        x = self.norm(x)
        return x, self.duration(x), self.first_phone(x), self.second_phone(x)


def speakers(voices: int, blocks: int, width: int) -> nn.Embedding:
    """What each voice adds before each of so many blocks: nothing, before training."""
    table = nn.Embedding(voices, blocks * width)
    nn.init.zeros_(table.weight)
    return table


class OwnLinear(nn.Module):
    """A linear map that each voice has of its own; alike before training."""

    def __init__(self, voices: int, inputs: int, outputs: int) -> None:
        super().__init__()
        first = nn.Linear(inputs, outputs)
        self.weight = nn.Parameter(first.weight.T.detach().repeat(voices, 1, 1))
        self.bias = nn.Parameter(first.bias.detach().repeat(voices, 1))

    def forward(self, x: Tensor, voice: Tensor) -> Tensor:
        """[B, T, inputs], [B] -> [B, T, outputs]."""
        return own_product(x, self.weight, voice) + self.bias[voice][:, None]


def own_product(x: Tensor, weights: Tensor, voice: Tensor) -> Tensor:
    """[B, T, inputs] times the matrix of each voice: weights [voices, inputs, outputs], voice [B] -> [B, T, outputs].

    All are multiplied and one is kept. ONNX Runtime packs a constant matrix, and the product of a row is then the same
    to the bit however many rows there are; that of a gathered matrix is not, and a stream would differ from the whole.
    """
    voices, _, outputs = weights.shape
    every = x @ weights.transpose(0, 1).flatten(1)
    kept = torch.eye(voices)[voice][:, None, :, None]
    return (every.unflatten(-1, (voices, outputs)) * kept).sum(-2)


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
    """books: the codecs' [8, voices x 512, 64]; fixed."""

    books: Tensor
    scale: Tensor
    spread: Tensor
    others: Tensor

    def __init__(self, books: Tensor, width: int = WIDTH, depth: int = LAYERS, heads: int = HEADS) -> None:
        super().__init__()
        voices = books.shape[1] // SIZE
        self.text = TextEncoder(voices)
        self.speaker = speakers(voices, depth, width)
        self.register_buffer("books", books)
        self.register_buffer("scale", scales(books))
        self.register_buffer("spread", torch.ones(voices, len(books)))  # squared distance to each book's best vector
        self.register_buffer("others", strange(voices), persistent=False)
        self.condition = nn.Linear(self.text.norm.normalized_shape[0] + PLACES, width)
        self.feedback = OwnLinear(voices, LATENT, width)
        self.start = nn.Parameter(torch.zeros(width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.latent = OwnLinear(voices, width, LATENT)
        self.refine = nn.ModuleList(
            nn.Sequential(nn.Linear(width + LATENT, 128), nn.GELU(), nn.Linear(128, LATENT))
            for _ in range(len(books) - 1)
        )
        self.sharpness = nn.Parameter(torch.zeros(len(books)))

    def enter(self, states: Tensor, places: Tensor, previous: Tensor, unknown: Tensor, voice: Tensor) -> Tensor:
        """States of the letters being spoken [B, T, 192], their places [B, T, 6], the latent of the frame before [B,
        T, 64] -> [B, T, width]. unknown [B, T]: the frame before is not given."""
        given = self.feedback(previous / self.scale[voice][:, None, None], voice)
        before = torch.where(unknown[..., None], self.start, given)
        return self.condition(torch.cat([states, places], -1)) + before

    def own(self, voice: Tensor) -> Sequence[Tensor]:
        """What voices [B] add before each block, [B, 1, width]."""
        return self.speaker(voice)[:, None].chunk(len(self.blocks), -1)

    def frames(self, x: Tensor, voice: Tensor) -> Tensor:
        """All frames of a batch at once, for training: [B, T, width] and [B] -> [B, T, width]."""
        steps = torch.arange(x.shape[1])
        distance = steps[:, None] - steps
        mask = torch.where((distance >= 0) & (distance < WINDOW), 0.0, -1e9)
        angles = rotary_angles(steps, x.shape[2] // cast(Block, self.blocks[0]).heads)[None, None]
        for block, own in zip(self.blocks, self.own(voice), strict=True):
            x, _, _ = block(x + own, angles, None, mask)
        return self.norm(x)

    def predict(self, x: Tensor, voice: Tensor) -> Tensor:
        """[B, T, width], [B] -> latents [B, T, 64]."""
        return self.latent(x, voice) * self.scale[voice][:, None, None]

    def target(self, x: Tensor, voice: Tensor, book: int, predicted: Tensor, chosen: Tensor) -> Tensor:
        """Where the next code vector should lie: what the chosen books leave of the prediction, corrected by a small
        net.
        """
        if book == 0:
            return predicted
        scale = self.scale[voice][:, None]
        return predicted - chosen + self.refine[book - 1](torch.cat([x, chosen / scale], -1)) * scale

    def scores(self, book: int, target: Tensor, voice: Tensor) -> Tensor:
        """Logits of a book's vectors: negative squared distances to the target but for what is the same for all,
        [N, 64] -> [N, voices x 512]; those of the other voices can't be chosen.
        """
        vectors, sharpness = self.books[book], torch.exp(self.sharpness[book]) / self.spread[:, book]
        far = self.others - 0.5 * sharpness[:, None] * vectors.pow(2).sum(1)
        return (sharpness[voice][:, None] * target) @ vectors.T + far[voice]

    def pick(self, x: Tensor, voice: Tensor) -> tuple[Tensor, Tensor]:
        """[N, width], [N] -> greedy codes int64 [N, 8] and their latent [N, 64]."""
        predicted = self.predict(x[:, None], voice)[:, 0]
        chosen, codes = torch.zeros_like(predicted), []
        for book in range(len(self.books)):
            code = self.scores(book, self.target(x, voice, book, predicted, chosen), voice).argmax(-1)
            codes.append(code)
            chosen = chosen + F.embedding(code, self.books[book])
        return torch.stack(codes, -1), chosen


def scales(books: Tensor) -> Tensor:
    """The deviation of each voice's first book, [voices]: the unit of its latents."""
    return torch.stack([own.std() for own in books[0].split(SIZE)])


def strange(voices: int) -> Tensor:
    """[voices, voices x 512], to add to scores: the books of others."""
    return torch.where(torch.eye(voices).bool(), 0.0, NEVER).repeat_interleave(SIZE, 1)


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
        guidance: Tensor, voice: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """states [B, 192], places [B, 6], previous latent [B, 64], position int64 [B] counted from 0 in the request,
        ring [B, layers, 2, heads, WINDOW - 1, head], partner int64 [B]: the row that a row is guided away from (itself
        if it is not), guidance [B]: how far, voice int64 [B] -> codes int64 [B, 8], latent [B, 64], new keys and values
        [B, layers, 2, heads, head]. The row of a text that is not told has states and places of 0."""
        net = self.talker
        x = net.enter(states[:, None], places[:, None], previous[:, None], (position == 0)[:, None], voice)
        angles = rotary_angles(position, ring.shape[-1])[:, None, None]
        filled = torch.arange(WINDOW) < torch.where(position < WINDOW - 1, position, WINDOW - 1)[:, None]
        present = filled | (torch.arange(WINDOW) == WINDOW - 1)  # the frame itself comes last
        mask = torch.where(present, 0.0, -1e9)[:, None, None]
        new = []
        for index, (block, own) in enumerate(zip(net.blocks, net.own(voice), strict=True)):
            x, k, v = block(x + own, angles, (ring[:, index, 0], ring[:, index, 1]), mask)
            new.append(torch.stack([k[:, :, 0], v[:, :, 0]], 1))
        codes, latent = net.pick(guided(net.norm(x)[:, 0], partner, guidance), voice)
        return codes - SIZE * voice[:, None], latent, torch.stack(new, 1)


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
