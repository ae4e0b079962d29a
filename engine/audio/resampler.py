"""Streaming conversion of mono audio between sample rates."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import av
import av.error
import numpy as np
from av.filter import Graph
from numpy.typing import NDArray

Sample = TypeVar("Sample", np.int16, np.float32)

_FORMATS = {"int16": "s16", "float32": "flt"}


class Resampler(Generic[Sample]):
    """Streaming sample rate converter for mono audio. The result does not depend on how the input is cut into pieces.

    It holds back the last 1 to 2 ms of its input until ``flush``.
    """

    def __init__(self, from_hz: int, to_hz: int, dtype: type[Sample] = np.int16) -> None:
        self._from_hz = from_hz
        self._to_hz = to_hz
        self._dtype = dtype
        self._format = _FORMATS[np.dtype(dtype).name]
        self._graph = None if from_hz == to_hz else _resampling(from_hz, to_hz, self._format)

    def push(self, samples: NDArray[Sample]) -> NDArray[Sample]:
        """Convert the next piece.

        Args:
            samples: [n] samples at ``from_hz``; int16, or float32 in [-1, 1].

        Returns:
            About n * to_hz / from_hz samples at ``to_hz``, of the same dtype.
        """
        if self._graph is None or not len(samples):
            return samples
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(cast("Any", samples[None])), format=self._format, layout="mono"
        )
        frame.sample_rate = self._from_hz
        self._graph.push(frame)
        # Pull only once: an empty graph raises an exception, which costs as much as a pull.
        return self._pulled(self._graph)

    def flush(self) -> NDArray[Sample]:
        """Return the samples that were held back. Afterwards the resampler starts afresh."""
        if self._graph is None:
            return np.empty(0, self._dtype)
        self._graph.push(None)
        rest = self._pulled(self._graph)
        self._graph = _resampling(self._from_hz, self._to_hz, self._format)
        return rest

    def _pulled(self, graph: Graph) -> NDArray[Sample]:
        """Return the samples of one output frame; empty if there is none."""
        with suppress(av.error.BlockingIOError, av.error.EOFError):
            return cast("NDArray[Sample]", cast("av.AudioFrame", graph.pull()).to_ndarray()).reshape(-1)
        return np.empty(0, self._dtype)


def resample(samples: NDArray[Sample], from_hz: int, to_hz: int) -> NDArray[Sample]:
    """Convert a whole clip: [n] samples at ``from_hz`` to about [n * to_hz / from_hz] samples at ``to_hz``."""
    resampler: Resampler[Sample] = Resampler(from_hz, to_hz, samples.dtype.type)
    return np.concatenate([resampler.push(samples), resampler.flush()])


def _resampling(from_hz: int, to_hz: int, form: str) -> Graph:
    """Build the same filter graph as av.AudioResampler, but with one thread.

    av.AudioResampler starts one thread per CPU core, and each session has three resamplers.
    """
    graph = Graph()
    graph.threads = 1
    source = graph.add("abuffer", sample_rate=f"{from_hz}", sample_fmt=form, channel_layout="mono")
    shape = graph.add("aformat", sample_rates=f"{to_hz}", sample_fmts=form, channel_layouts="mono")
    source.link_to(shape)
    shape.link_to(graph.add("abuffersink"))
    graph.configure()
    return graph
