"""Sound of one rate as sound of another, while it comes: what was carried over from one piece shapes the next."""

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
    """Streaming conversion of mono sound to another rate: however it is cut, the samples are the same.

    What it holds back (1 to 2 ms) comes with ``flush``.
    """

    def __init__(self, from_hz: int, to_hz: int, dtype: type[Sample] = np.int16) -> None:
        self._from_hz = from_hz
        self._to_hz = to_hz
        self._dtype = dtype
        self._format = _FORMATS[np.dtype(dtype).name]
        self._graph = None if from_hz == to_hz else _resampling(from_hz, to_hz, self._format)

    def push(self, samples: NDArray[Sample]) -> NDArray[Sample]:
        """[n] at the one rate to [about n * to / from] at the other."""
        if self._graph is None or not len(samples):
            return samples
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(cast("Any", samples[None])), format=self._format, layout="mono"
        )
        frame.sample_rate = self._from_hz
        self._graph.push(frame)
        return self._pulled(self._graph)  # once: that there is no more is an exception, which takes as long

    def flush(self) -> NDArray[Sample]:
        """Return the rest; the resampler starts afresh after it."""
        if self._graph is None:
            return np.empty(0, self._dtype)
        self._graph.push(None)
        rest = self._pulled(self._graph)
        self._graph = _resampling(self._from_hz, self._to_hz, self._format)
        return rest

    def _pulled(self, graph: Graph) -> NDArray[Sample]:
        """Return the samples that come of one frame, or of the end: one frame, or none."""
        with suppress(av.error.BlockingIOError, av.error.EOFError):
            return cast("NDArray[Sample]", cast("av.AudioFrame", graph.pull()).to_ndarray()).reshape(-1)
        return np.empty(0, self._dtype)


def resample(samples: NDArray[Sample], from_hz: int, to_hz: int) -> NDArray[Sample]:
    """A whole clip: [n] to [about n * to / from]."""
    resampler: Resampler[Sample] = Resampler(from_hz, to_hz, samples.dtype.type)
    return np.concatenate([resampler.push(samples), resampler.flush()])


def _resampling(from_hz: int, to_hz: int, form: str) -> Graph:
    """Build the graph of av.AudioResampler without the thread per core that it starts for each: a session has three."""
    graph = Graph()
    graph.threads = 1
    source = graph.add("abuffer", sample_rate=f"{from_hz}", sample_fmt=form, channel_layout="mono")
    shape = graph.add("aformat", sample_rates=f"{to_hz}", sample_fmts=form, channel_layouts="mono")
    source.link_to(shape)
    shape.link_to(graph.add("abuffersink"))
    graph.configure()
    return graph
