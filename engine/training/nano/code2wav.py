"""nano's code2wav in torch: a small causal network turns codes into filters and F0, which shape pulses and noise.

`Filters` has the weights and is exported with carried state. `Source` is differentiable signal processing for training;
the engine implements the same equations. The network starts from the codec's inverse projection, so it is intelligible
before training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.training.nano.codec import F0_SCALE, LATENT, SIZE, STACK, VOICED_SCALE, Codec, side_by_side
from engine.training.nano.features import HOP, MEAN_LOG_F0, MELS, RATE_HZ, log_mel, mel_centres, mel_scale
from engine.training.nano.talker import OwnLinear, own_product, scales, speakers

BANDS = 64  # filter bands, evenly spaced in mel from 0 to 8 kHz
FFT = 1024
HARMONIC_TOP_HZ = 7800
VALUES = MELS + 2
TOPS_HZ = (8500, 9500, 10500, 11500)
TOPS = len(TOPS_HZ)
ANCHOR = slice(62, 76)  # mel bands: 4 to 7 kHz
PULSES = ((0, 1.0), (1000, 1.0), (1500, 0.95), (2500, 0.88), (3500, 0.88), (4500, 0.71), (5500, 0.71), (6500, 0.78),
          (7400, 0.84))  # fmt: skip
"""Share of the harmonics' power at a frequency in Hz that stays harmonic; the rest becomes noise. The spectral losses
leave voiced sounds without noise, which sounds buzzy. With these shares, the voice is as periodic as the teacher's in
each band (`buzz`).
"""


class Values(NamedTuple):
    """Values decoded from the codes, every 10 ms.

    plain: [B, T, 82], mel, F0 and voicing in the units of the voice's codec; mel: [B, T, 80]; log_f0, voiced: [B, T];
    bands: log gains [B, T, 128]; slow, fast: the next tails.
    """

    plain: Tensor
    mel: Tensor
    log_f0: Tensor
    voiced: Tensor
    bands: Tensor
    slow: Tensor
    fast: Tensor


class CausalBlock(nn.Module):
    """ConvNeXt block that looks `kernel - 1` frames back, with the tail for the next call as explicit state."""

    def __init__(self, width: int, kernel: int, expand: int = 3) -> None:
        super().__init__()
        self.reach = kernel - 1
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, expand * width), nn.Linear(expand * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, x: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Map x [B, T, width] and tail [B, reach, width] to the output of x's shape and the next tail."""
        seen = torch.cat([tail, x], 1)
        y = self.norm(self.depthwise(seen.transpose(1, 2)).transpose(1, 2))
        return x + self.gain * self.down(F.gelu(self.up(y))), seen[:, -self.reach :]


class Filters(nn.Module):
    """Latents to log F0 and log band gains. Slow blocks run at 25 Hz, fast ones at 100 Hz.

    Each voice has its own codec parameters, embedding before every block, and maps from latents and to corrections.
    """

    books: Tensor
    scale: Tensor
    basis: Tensor
    mean: Tensor
    mel_mean: Tensor
    mel_scale: Tensor
    noise_level: Tensor
    mel_to_band: Tensor
    breath: Tensor
    pulses: Tensor
    top_weight: Tensor
    top_level: Tensor

    def __init__(self, codecs: Sequence[Codec], width: int = 160, slow: int = 2, fast: int = 4) -> None:
        super().__init__()
        self.register_buffer("books", side_by_side(codecs))
        self.register_buffer("scale", scales(self.books))
        for name in ("basis", "mean", "mel_mean", "mel_scale"):
            self.register_buffer(name, torch.stack([getattr(codec, name) for codec in codecs]))
        self.speaker = speakers(len(codecs), slow + fast, width)
        self.width, self.slow_reach, self.fast_reach = width, slow * 2, fast * 4
        self.enter = OwnLinear(len(codecs), LATENT, width)
        self.slow = nn.ModuleList(CausalBlock(width, 3) for _ in range(slow))
        self.spread = nn.Linear(width, STACK * width)
        self.fast = nn.ModuleList(CausalBlock(width, 5) for _ in range(fast))
        self.norm = nn.LayerNorm(width)
        self.correct = OwnLinear(len(codecs), width, VALUES + 2 * BANDS)
        nn.init.zeros_(self.correct.weight)
        nn.init.zeros_(self.correct.bias)
        self.register_buffer("noise_level", noise_level())
        self.register_buffer("mel_to_band", mel_to_band())
        self.register_buffer("breath", band_breath())
        self.register_buffer("pulses", pulse_share(), persistent=False)
        self.register_buffer("top_weight", torch.zeros(VALUES, TOPS))  # fitted by `top`
        self.register_buffer("top_level", torch.zeros(TOPS))

    def embed(self, codes: Tensor, voice: Tensor) -> Tensor:
        """Map codes int64 [B, T, 8] and voices [B] to latents [B, T, 64]."""
        codes = codes + SIZE * voice[:, None, None]
        return torch.stack([F.embedding(codes[..., i], self.books[i]) for i in range(len(self.books))]).sum(0)

    def initial(self, batch: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(batch, self.slow_reach, self.width), torch.zeros(batch, self.fast_reach, self.width)

    def values(self, latent: Tensor, voice: Tensor, slow: Tensor, fast: Tensor) -> Values:
        """Decode latents [B, T, 64] of voices [B], and return the next tails."""
        batch, frames, _ = latent.shape
        trunk, slow, fast = self._trunk(latent / self.scale[voice][:, None, None], voice, slow, fast)
        plain = own_product(latent, self.basis.transpose(1, 2), voice) + self.mean[voice][:, None]
        correction = self.correct(trunk, voice)
        plain = plain.reshape(batch, STACK * frames, VALUES) + correction[..., :VALUES]
        mel = plain[..., :MELS] * self.mel_scale[voice][:, None] + self.mel_mean[voice][:, None]
        log_f0 = plain[..., MELS] / F0_SCALE + MEAN_LOG_F0
        voiced = (plain[..., MELS + 1] / VOICED_SCALE + 0.5).clamp(0, 1)
        bands = self._roughen(self._bands(mel, voiced) + correction[..., VALUES:])
        return Values(plain, mel, log_f0, voiced, bands, slow, fast)

    def forward(self, codes: Tensor, voice: Tensor, slow: Tensor, fast: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the exported function.

        Maps codes int64 [B, T, 8] and voices [B] to [B, 4 T, 133] (log F0, harmonic bands, noise bands, and the level
        of the top octave relative to the last band) and the next tails.
        """
        found = self.values(self.embed(codes, voice), voice, slow, fast)
        rise = self.top(found.plain, voice) - loudness(found.bands)[..., -1:]
        return torch.cat([found.log_f0[..., None], found.bands, rise], -1), found.slow, found.fast

    def top(self, plain: Tensor, voice: Tensor) -> Tensor:
        """Return log gains around `TOPS_HZ`, [B, 4 T, 4].

        They are learned from the only teacher with a top octave, and shifted by each voice's mean level just below it.
        """
        return plain @ self.top_weight + self.top_level + self.anchors()[voice][:, None, None]

    def anchors(self) -> Tensor:
        """Return the mean level of each voice between 4 and 7 kHz, [voices]."""
        return self.mel_mean[:, ANCHOR].mean(1)

    def _trunk(self, x: Tensor, voice: Tensor, slow: Tensor, fast: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, frames, _ = x.shape
        own = self.speaker(voice)[:, None].chunk(len(self.slow) + len(self.fast), -1)
        x, slow_tails = _run(self.slow, own[: len(self.slow)], self.enter(x, voice), slow)
        x = self.spread(x).reshape(batch, STACK * frames, self.width)
        x, fast_tails = _run(self.fast, own[len(self.slow) :], x, fast)
        return self.norm(x), slow_tails, fast_tails

    def _bands(self, mel: Tensor, voiced: Tensor) -> Tensor:
        """Return log gains of harmonic and noise bands that give the log-mel envelope; high bands are breathy even when
        voiced.
        """
        envelope = (mel - self.noise_level) @ self.mel_to_band.T
        periodic = voiced[..., None] * (1 - 0.7 * self.breath)
        harmonic = envelope + torch.log(periodic.clamp(1e-3, 1))
        noise = envelope + 0.5 * torch.log((1 - 0.97 * periodic).clamp(1e-3, 1))
        return torch.cat([harmonic, noise], -1)

    def _roughen(self, bands: Tensor) -> Tensor:
        """Move part of each harmonic band's power to the noise band."""
        harmonic, noise = bands.split(BANDS, -1)
        power = torch.exp(2 * noise) + (1 - self.pulses) * torch.exp(2 * harmonic)
        return torch.cat([harmonic + 0.5 * torch.log(self.pulses), 0.5 * torch.log(power.clamp(min=1e-12))], -1)


def loudness(bands: Tensor) -> Tensor:
    """Return log gains of harmonics and noise together, [..., 128] to [..., 64]."""
    harmonic, noise = bands.split(BANDS, -1)
    return 0.5 * torch.log(torch.exp(2 * harmonic) + torch.exp(2 * noise))


def _run(blocks: nn.ModuleList, own: Sequence[Tensor], x: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """Run blocks with the voice's embeddings; their tails are concatenated in `tails` [B, total reach, width]."""
    reach = cast(CausalBlock, blocks[0]).reach
    after = []
    for index, block in enumerate(blocks):
        x, tail = block(x + own[index], tails[:, index * reach : (index + 1) * reach])
        after.append(tail)
    return x, torch.cat(after, 1)


class Source(nn.Module):
    """Band-limited pulses and white noise through minimum-phase filters, overlap-added every 10 ms. Has no weights."""

    band_to_bin: Tensor
    window: Tensor
    fold: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("band_to_bin", band_to_bin())
        self.register_buffer("window", torch.hann_window(2 * HOP))
        fold = torch.full((FFT,), 2.0)
        fold[0], fold[FFT // 2], fold[FFT // 2 + 1 :] = 1, 1, 0
        self.register_buffer("fold", fold)

    def forward(self, log_f0: Tensor, bands: Tensor, noise: Tensor | None = None) -> Tensor:
        """Map log F0 [B, T], log gains [B, T, 128] and noise [B, (T + 1) * 160] to samples [B, T * 160]."""
        batch, frames, _ = bands.shape
        count = (frames + 1) * HOP
        pulses = pulse_train(F.pad(log_f0[:, None], (0, 1), mode="replicate")[:, 0], count)
        noise = torch.randn(batch, count) if noise is None else noise
        spectrum = self._windowed(pulses) * self.response(bands[..., :BANDS])
        spectrum = spectrum + self._windowed(noise) * self.response(bands[..., BANDS:])
        pieces = torch.fft.irfft(spectrum, FFT)
        out = F.fold(pieces.transpose(1, 2), (1, (frames - 1) * HOP + FFT), (1, FFT), stride=(1, HOP))[:, 0, 0]
        return out[:, HOP // 2 : HOP // 2 + frames * HOP]

    def _windowed(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x.unfold(1, 2 * HOP, HOP) * self.window, FFT)

    def response(self, bands: Tensor) -> Tensor:
        """Map log band gains [..., 64] to a minimum-phase spectrum [..., 513] with the folded cepstrum."""
        log_gain = (bands @ self.band_to_bin).clamp(-12, 6)
        return torch.exp(torch.fft.rfft(torch.fft.irfft(log_gain, FFT) * self.fold, FFT))


def pulse_train(log_f0: Tensor, count: int) -> Tensor:
    """Map log F0 [B, T] to samples [B, count]: all harmonics up to 7.8 kHz in phase, unit power (a Dirichlet
    kernel).
    """
    f0_hz = torch.exp(log_f0).clamp(60, 450)
    f0_hz = F.pad(f0_hz[:, None], (1, 0), mode="replicate")
    f0_hz = F.interpolate(f0_hz, scale_factor=HOP, mode="linear", align_corners=False)[
        :, 0, HOP // 2 : HOP // 2 + count
    ]
    phase = torch.cumsum((f0_hz / RATE_HZ).double(), 1)
    angle = math.pi * (phase - phase.floor()).float()
    harmonics = (HARMONIC_TOP_HZ / f0_hz).floor()
    sine = torch.sin(angle)
    peak = sine.abs() < 1e-4
    kernel = torch.where(peak, 2 * harmonics + 1, torch.sin((2 * harmonics + 1) * angle) / torch.where(peak, 1.0, sine))
    return (kernel - 1) / torch.sqrt(2 * harmonics)


def band_edges_hz() -> Tensor:
    return 700 * (10 ** (torch.linspace(0, 1, BANDS) * float(mel_scale(torch.tensor(8000.0))) / 2595) - 1)


def band_to_bin() -> Tensor:
    """Return the linear interpolation from 64 bands to 513 bins, [64, 513]."""
    edges, bins = band_edges_hz(), torch.linspace(0, RATE_HZ / 2, FFT // 2 + 1).clamp(max=7999.9)
    index = (torch.searchsorted(edges, bins, right=True) - 1).clamp(0, BANDS - 2)
    share = (bins - edges[index]) / (edges[index + 1] - edges[index])
    columns = torch.arange(len(bins))
    weights = torch.zeros(BANDS, len(bins))
    weights[index, columns] = 1 - share
    weights[index + 1, columns] = share
    return weights


def mel_to_band() -> Tensor:
    """Return the linear interpolation from 80 log-mel values to the 64 bands, [64, 80]."""
    centres = mel_centres()
    at = torch.linspace(0, 1, BANDS) * mel_scale(torch.tensor(8000.0))
    place = ((at - centres[0]) / (centres[1] - centres[0])).clamp(0, MELS - 1.001)
    index, rows = place.long(), torch.arange(BANDS)
    weights = torch.zeros(BANDS, MELS)
    weights[rows, index] = 1 - (place - index)
    weights[rows, index + 1] = place - index
    return weights


def band_breath() -> Tensor:
    """Return the breathiness of voiced speech by band: 0 below 3 kHz, 1 above 5.5 kHz."""
    return torch.sigmoid((band_edges_hz() - 4200) / 500)


def pulse_share() -> Tensor:
    """Return `PULSES` at the 64 bands."""
    at_hz, shares = zip(*PULSES, strict=True)
    return torch.from_numpy(np.interp(band_edges_hz().numpy(), at_hz, shares)).float()


def noise_level() -> Tensor:
    """Return the log-mel level of white noise of unit power, a scalar, because the bands are flat. Unit pulses have the
    same.
    """
    noise = torch.randn(RATE_HZ * 4, generator=torch.Generator().manual_seed(0))
    return log_mel(noise).mean()
