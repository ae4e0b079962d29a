"""The choice of a conversation's items that go into the next prompt, so that it fits the model's context.

The oldest turns are left out of the prompt, whole; the conversation keeps them. Tokens are estimated, rather too many
than too few: only the model's family can count them. One per session; knows no wire format and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.realtime.conversation.model_context import json_size, tools_size
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
    ResponseOptions,
    RetentionRatio,
    ToolListItem,
    UserAudio,
)
from app.refusal import Refusal
from engine import MIC_RATE_HZ, ModelInfo, TokenIds, ToolDefinition

Rule = str | RetentionRatio
"""The protocol's ``truncation``: ``auto``, ``disabled``, or how much to keep."""

_KEPT = 2 / 3
"""The part of the room that is kept where the client does not say: with less, some turns pass before the prompt's
beginning changes again. A prompt that begins anew is computed anew, which its next listener waits for."""
_TIGHTER = 1.25
"""The factor by which tokens are taken to be dearer after the model has found a prompt too long."""


class Truncation:
    """The place where the prompt begins now; it moves on only when the conversation has outgrown the context again."""

    def __init__(self, model: ModelInfo) -> None:
        self._model = model
        self._first: str | None = None
        self._dearness = 1.0

    def fit(
        self,
        rule: Rule,
        items: tuple[Item, ...],
        options: ResponseOptions,
        hosted: tuple[ToolDefinition, ...] = (),
        remember: bool = True,
    ) -> tuple[Item, ...]:
        """The items that the prompt is made of: all, or the newest turns. Raises Refusal if it must not be cut.

        The last turn stays, however long: whether it can be answered is for the model to say. The place is not to be
        remembered where the items are not the conversation's own.
        """
        turns, room = _turns(items), self._room(rule, options, json_size(hosted) if hosted else 0)
        start = next((i for i, turn in enumerate(turns) if turn[0].id == self._first), 0)
        kept = turns[start:]
        costs = [self._tokens(turn) for turn in kept]
        if sum(costs) <= room or len(kept) < 2:
            return _joined(kept)
        if rule == "disabled":
            message = "The conversation has outgrown the model's context, and session.truncation is 'disabled'."
            raise Refusal("context_length_exceeded", message, "truncation")
        room *= rule.retention_ratio if isinstance(rule, RetentionRatio) else _KEPT
        first, held = len(kept) - 1, costs[-1]
        while first and held + costs[first - 1] <= room:
            first -= 1
            held += costs[first]
        if remember:
            self._first = kept[first][0].id
        return _joined(kept[first:])

    def overflowed(self) -> None:
        """The model found the prompt too long after all: be stricter from now on."""
        self._dearness *= _TIGHTER

    def _room(self, rule: Rule, options: ResponseOptions, hosted: int) -> float:
        """Tokens for the conversation, beside the instructions, the tools and the answer. ``hosted`` is the size of
        tools that the server runs."""
        context, cost = self._model.context, self._model.cost
        response = context // 3
        if options.max_output_tokens != "inf":
            response = min(response, options.max_output_tokens)
        received = len(options.instructions) + tools_size(options) + hosted
        room = context - response - cost.instruction * received * self._dearness
        limits = rule.token_limits if isinstance(rule, RetentionRatio) else None
        if limits is not None and limits.post_instructions is not None:
            room = min(room, limits.post_instructions)
        return max(room, 0.0)

    def _tokens(self, turn: tuple[Item, ...]) -> float:
        return self._dearness * sum(map(self._cost, turn))

    def _cost(self, item: Item) -> float:
        cost = self._model.cost
        match item:
            case MessageItem(token_ids=TokenIds(tokenizer, ids)) if tokenizer == self._model.tokenizer:
                return cost.message + len(ids)  # it comes back as they are
            case MessageItem(content=content):
                return cost.message + sum(map(self._content_cost, content))
            case CallItem() | CallOutputItem():
                return cost.message + cost.character * chars_of(item)
            case HostedCallItem():
                return 2 * cost.message + cost.character * chars_of(item)
            case ToolListItem() | ApprovalRequestItem() | ApprovalResponseItem():
                return 0.0

    def _content_cost(self, content: Content) -> float:
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


def _turns(items: tuple[Item, ...]) -> list[tuple[Item, ...]]:
    """The items in turns: each begins where the user speaks after somebody else did."""
    turns: list[list[Item]] = []
    users = False
    for item in items:
        mine = isinstance(item, MessageItem) and item.role == "user"
        if not turns or (mine and not users):
            turns.append([])
        turns[-1].append(item)
        users = mine
    return [tuple(turn) for turn in turns]


def _joined(turns: Sequence[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(item for turn in turns for item in turn)
