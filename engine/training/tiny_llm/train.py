"""Train the tiny model: ``python -m engine.training.tiny_llm.train FOLDER``.

It learns those exchanges of nano's dialogues that consist of words alone: greetings, jokes, days, refusals. The folder
can be loaded by transformers and vLLM. Seeds are fixed and one thread computes, so that sums are always in the same
order; one thread also suffers little on a busy machine.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.training.nano.dialogues import sample_dialogue
from engine.training.nano.turns import Turn
from engine.worker.models.nano.tokens import PRIVATE

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
END_ID = 0  # index of the first special token
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}<|end|>"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The template ignores instructions and tools, which the model has not learned."""

VOCABULARY, CONTEXT = 512, 1024
BATCH, LONGEST, TURNS = 16, 96, 2
RATE = 4e-3
STEPS, TRAINING = 500, 0
"""Number of training steps, and seed of the training data."""
NO_LOSS = -100

Talk = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = made_tokenizer()
    model = trained(tokenizer, arguments.steps)
    model.save_pretrained(arguments.folder)
    tokenizer.save_pretrained(arguments.folder)


def talks(rng: random.Random) -> Iterator[Talk]:
    """Yield (question, answer) pairs of endless conversations."""
    for turns in exchanges(rng):
        yield [(turn.request.text, turn.reply.text) for turn in turns]


def exchanges(rng: random.Random) -> Iterator[list[Turn]]:
    """Yield endless conversations: of each dialogue, the exchanges that consist of words alone."""
    while True:
        turns: list[Turn] = []
        while len(turns) < rng.randint(1, TURNS):
            turns += [
                turn
                for turn in sample_dialogue(rng)
                if turn.request.text and turn.reply.text and turn.scene is None and not turn.called
                if max(map(ord, turn.reply.text)) < PRIVATE
            ]
        yield turns[:TURNS]


def learned_questions(steps: int = STEPS) -> set[str]:
    """Return all questions within the given number of training steps."""
    drawn = itertools.islice(talks(random.Random(TRAINING)), steps * BATCH)
    return {asked for talk in drawn for asked, _ in talk}


def made_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer like GPT-2's (llama.cpp's ``gpt2``)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    drawn = talks(random.Random(1))
    words = [text for _ in range(3000) for pair in next(drawn) for text in pair]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(words, trainer)
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    whole.chat_template = TEMPLATE
    return whole


def trained(tokenizer: PreTrainedTokenizerFast, steps: int) -> LlamaForCausalLM:
    """Train the model; the learning rate rises for 100 steps, and falls to zero."""
    model = LlamaForCausalLM(config_of(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05, betas=(0.9, 0.98))
    batches = batched(tokenizer)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 100) * (1 - step / steps)
        ids, labels = next(batches)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"{step} steps, loss {loss.item():.3f}", flush=True)
    return model.eval()


def config_of(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END_ID,
        pad_token_id=END_ID,
    )


def batched(tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (ids, labels), int64 [BATCH, LONGEST]; only the assistant's text has labels."""
    drawn = talks(random.Random(TRAINING))
    while True:
        ids = torch.full((BATCH, LONGEST), END_ID)
        labels = torch.full((BATCH, LONGEST), NO_LOSS)
        for row in range(BATCH):
            said, learned = encoded(tokenizer, next(drawn))
            size = min(len(said), LONGEST)
            ids[row, :size], labels[row, :size] = torch.tensor(said[:size]), torch.tensor(learned[:size])
        yield ids, labels


def encoded(tokenizer: PreTrainedTokenizerFast, talk: Talk) -> tuple[list[int], list[int]]:
    """Return the ids of a conversation in the template's format, and the labels."""
    ids, labels = list[int](), list[int]()
    for asked, answered in talk:
        question = tokenizer.encode(f"{USER}{asked}{END}{ASSISTANT}")
        answer = tokenizer.encode(f"{answered}{END}")
        ids += question + answer
        labels += [NO_LOSS] * len(question) + answer
    return ids, labels


if __name__ == "__main__":
    main()
