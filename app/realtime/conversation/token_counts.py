"""Token counts of a conversation's items: estimates, corrected by the counts that the model reports.

An estimate by characters is far too low for some scripts: a small model may need ten times as many tokens for emoji.
Each answer reports the exact size of its prompt, which shows what the prompt's new parts took.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.realtime.conversation.sizes import chars_of
from app.realtime.protocol import (
    ApprovalRequestItem,
    ApprovalResponseItem,
    AssistantAudio,
    CallItem,
    CallOutputItem,
    Content,
    HostedCallItem,
    Item,
    MessageImage,
    MessageItem,
    MessageText,
    MessageVideo,
    ToolListItem,
    UserAudio,
)
from engine import MIC_RATE_HZ, ModelInfo, TokenIds


class TokenCounts:
    """The token counts of one session's conversation."""

    def __init__(self, model: ModelInfo) -> None:
        self._model = model
        self._overhead = 0.0
        """Counted tokens of instructions and tools, minus their estimate: the chat template adds some."""
        self._counted_head: float | None = None
        """The estimate of the instructions and tools that were counted last."""
        self._density: dict[str, float] = {}
        """Tokens per estimated token, by item."""
        self._counted: set[str] = set()

    def head(self, chars: int) -> float:
        """Return the tokens of instructions and tools with this number of characters."""
        return max(0.0, self._head_estimate(chars) + self._overhead)

    def of(self, item: Item) -> float:
        return self._estimate(item) * self._density.get(item.id, 1.0)

    def wrote(self, answer: Sequence[Item], tokens: int) -> None:
        """Note that the model wrote ``answer`` in this number of tokens, which may include its thoughts.

        Thoughts do not come back in a prompt. A tokenizer makes at most one token of a byte, which bounds the rest.
        """
        estimate = sum(map(self._estimate, answer))
        if tokens and estimate:
            around = self._model.cost.message * len(answer)
            density = (min(tokens, sum(map(_bytes_of, answer))) + around) / estimate
            self._density |= {item.id: density for item in answer if not self._has_ids(item)}

    def read(self, prompt: Sequence[Item], head_chars: int, tokens: int) -> None:
        """Note that the model read this prompt as ``tokens``: the parts that are new to it took the difference.

        A count below that of the known parts is ignored. Some servers leave out what they had computed before.
        """
        head, estimate = self.head(head_chars), self._head_estimate(head_chars)
        costs = {item.id: self.of(item) for item in prompt}
        new = {id: cost for id, cost in costs.items() if id not in self._counted}
        known = sum(costs.values()) - sum(new.values())
        new_head = 0.0 if estimate == self._counted_head else head
        rest, expected = tokens - known - (head - new_head), new_head + sum(new.values())
        if rest <= 0 or expected <= 0:
            return
        if new_head:
            self._overhead = new_head * rest / expected - estimate
            self._counted_head = estimate
        for id in new:
            self._density[id] = self._density.get(id, 1.0) * rest / expected
        self._density = {id: self._density.get(id, 1.0) for id in costs}
        self._counted = set(costs)

    def _head_estimate(self, chars: int) -> float:
        return self._model.cost.message + self._model.cost.instruction * chars

    def _has_ids(self, item: Item) -> bool:
        """Whether the model gets an item back as the token ids that it wrote."""
        ids = item.token_ids if isinstance(item, MessageItem) else None
        return ids is not None and ids.tokenizer == self._model.tokenizer

    def _estimate(self, item: Item) -> float:
        cost = self._model.cost
        match item:
            case MessageItem(token_ids=TokenIds(ids=ids)) if self._has_ids(item):
                return cost.message + len(ids)
            case MessageItem(content=content):
                return cost.message + sum(map(self._content_estimate, content))
            case CallItem() | CallOutputItem():
                return cost.message + cost.character * chars_of(item)
            case HostedCallItem():
                return 2 * cost.message + cost.character * chars_of(item)
            case ToolListItem() | ApprovalRequestItem() | ApprovalResponseItem():
                return 0.0

    def _content_estimate(self, content: Content) -> float:
        cost = self._model.cost
        match content:
            case MessageText(text):
                return cost.character * len(text)
            case AssistantAudio():
                return cost.character * len(content.played_text)
            case UserAudio(pcm):
                return cost.audio_s * len(pcm) / MIC_RATE_HZ
            case MessageImage():
                return cost.image
            case MessageVideo(frames, pcm=pcm, apart=apart):
                frame = cost.image if apart else cost.frame
                return frame * len(frames) + cost.audio_s * (0 if pcm is None else len(pcm)) / MIC_RATE_HZ


def _bytes_of(item: Item) -> int:
    """Bytes of the text that the model wrote for an item."""
    match item:
        case MessageItem(content=content):
            texts = [part.text for part in content if isinstance(part, MessageText | AssistantAudio)]
        case CallItem(name=name, arguments=arguments) | HostedCallItem(function=name, arguments=arguments):
            texts = [name, arguments]
        case _:
            texts = []
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
