"""The thinker's networks: from rows of prompts and tokens to hidden rows, and to the next tokens.

The networks keep their state in slots of the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.worker.nn.cuda_graph_runner import CudaGraphRunner
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.device import to_device
from engine.worker.nn.prefills import Prefills
from engine.worker.nn.quantized import Weight, linear
from engine.worker.nn.sampler import draw
from engine.worker.nn.sampling_params import BatchSamplingParams, SamplingParams
from engine.worker.nn.slots import Batch, CachePositions, OneRow
from engine.worker.nn.weights import WeightReader
from engine.worker.omni.source import THINKER, OmniSource


class ThinkerNet:
    """The checkpoint's thinker without its encoders."""

    def __init__(self, source: OmniSource, read: WeightReader) -> None:
        self.device = source.device
        self.dtype = source.dtype
        size = source.text.vocab_size, source.text.hidden_size
        self.embed_tokens = read("model.embed_tokens.weight", *size)
        tied = source.config.thinker_config.tie_word_embeddings
        self.head: Weight = self.embed_tokens if tied else read.linear(("lm_head",), size[:1], size[1])
        self.decoder = TransformerDecoder(read.below("model"), source.text)
        self.cache = self.decoder.cache(source.slots + source.static, source.context, source.cache_tokens)
        self.tap = source.talker_feed.tap
        self.top_k: int = source.generation.get("top_k", 20)
        self.graphs: CudaGraphRunner | None = None
        if source.static:
            bucketed = self.decoder.kernels is None
            self.graphs = CudaGraphRunner(
                "thinker", self._step, source.slots, source.context, self.top_k, self.device, bucketed
            )
            self.graphs.warm()
        self.prefills = Prefills("thinker's prompts", self.decoder, self.cache, self.tap, source.static)
        self.prefills.warm()

    def append(self, batch: Batch, added: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Compute rows of prompts (see ``Decoder.append``).

        Return the hidden rows of the last layer and of layer ``tap``.
        """
        return self.prefills(batch, added)

    def follow(self, batch: Batch) -> Tensor:
        """Compute the rows of known tokens, without sampling. Return their hidden rows [all, width]."""
        return self.append(batch, [])[0]

    def write(self, inputs: Sequence[DecodeInput]) -> list[int]:
        """Compute a token for each slot. Return the next tokens; FAILED if the logits are not numbers."""
        if self.graphs is not None:
            return self.graphs(inputs)[:, 0].tolist()
        where = CachePositions.of(self.cache, [one.slot for one in inputs], [one.start for one in inputs], 1)
        tokens = to_device([one.token for one in inputs], self.device)
        positions = to_device([one.position for one in inputs], self.device)
        hidden = self._forward(tokens, positions, where)
        return self.choose(hidden, [one.params for one in inputs], [one.step for one in inputs])

    def choose(self, hidden: Tensor, params: Sequence[SamplingParams], steps: Sequence[int]) -> list[int]:
        """Draw a token from each hidden row [batch, width]."""
        together = BatchSamplingParams.of(params, self.device)
        return draw(linear(hidden, self.head), together, THINKER, to_device(steps, self.device)).tolist()

    def _forward(self, tokens: Tensor, positions: Tensor, where: CachePositions | OneRow) -> Tensor:
        """Return hidden rows [batch, width] of one token each, at positions that are equal in all axes."""
        angles = self.decoder.rope(positions.expand(3, -1)[..., None], self.dtype)
        return self.decoder.step(self.embed_tokens[tokens][:, None], angles, where, self.cache)[:, -1]

    def _step(self, batch: DecodeBatch, bucket: int) -> Tensor:
        """Return the next token of each slot, int [batch, 1], like ``write``, in a form that a CUDA graph can capture.

        All ``batch.starts`` are below ``bucket``.
        """
        where = self.decoder.one_row(self.cache, batch.slots, batch.starts, bucket)
        hidden = self._forward(batch.tokens, batch.positions, where)
        return draw(linear(hidden, self.head), batch.params, THINKER, batch.steps)[:, None]
