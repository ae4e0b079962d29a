"""transformers' ``generate()`` on the same checkpoint; audio is available only at the end."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.peer import Question, Subject, Times
from engine.errors import ConfigError
from engine.worker.libraries.installed import installed
from engine.worker.nn.weights import find

MODELS = {"qwen3_omni": "Qwen3OmniMoeForConditionalGeneration"}


class Transformers:
    """One checkpoint, loaded as a user of the library would, in float32."""

    def __init__(self, subject: Subject) -> None:
        if subject.model not in MODELS:
            raise ConfigError(f"benchmarks.against supports only {', '.join(MODELS)}, not {subject.model}")
        library = installed("benchmarks.against", "transformers", "transformers", "dev")
        library.utils.logging.disable_progress_bar()
        torch.set_num_threads(subject.threads)
        folder = find(Path(subject.weights) if subject.weights else None)
        self.model: Any = getattr(library, MODELS[subject.model]).from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer: Any = library.AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def answer(self, question: Question) -> Times:
        """Answer one question at a time; ``count`` is ignored."""
        begun_s = time.perf_counter()
        talk = [{"role": "user", "content": [{"type": "text", "text": question.text}]}]
        prompt = self.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([self.tokenizer.encode(prompt, add_special_tokens=False)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # transformers warns about its own defaults
            _, wave = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                thinker_max_new_tokens=question.tokens,
                talker_max_new_tokens=question.frames + 1,
                thinker_do_sample=False,
                talker_do_sample=False,
                thinker_eos_token_id=self.model.config.im_end_token_id,
            )
        took_s = time.perf_counter() - begun_s
        return Times(first_s=(took_s,), whole_s=took_s, frames=round(wave.shape[-1] / self._samples))

    @property
    def _samples(self) -> int:
        """Samples of a codec frame."""
        return self.model.code2wav.total_upsample


PEER = Transformers
