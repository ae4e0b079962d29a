"""Converts messages to token ids with a checkpoint's chat template and tokenizer, and ids back to text, piece by piece.

User text is always encoded as plain text: it can never become a special token. Earlier answers keep the ids that the
model generated. The placeholder of an image or audio stays in the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from engine.core import AudioPart, ImagePart, Message, TextPart, ToolCallPart, ToolDefinition, ToolResultPart, VideoPart
from engine.errors import RequestError, WeightsError
from engine.worker.llm.checkpoint import template_in
from engine.worker.text.chat_template import Template
from engine.worker.text.template_check import check_template
from engine.worker.text.tokenizer import plain_of, read_tokenizer, role_tokens

_HELD = re.compile("\ue000(\\d+)\ue001")  # stands for a user's words while the template is rendered
_VOCABULARY = ("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json", "tokenizer.model")
LONGEST_CHARACTER = 8  # tokens; more that are no character yet never become one
LONGEST_OUTLINE = 16_000  # characters, tools included: kept renderings are bounded
OUTLINES = 256  # conversations begin alike, and rendering takes ten times as long as encoding the texts
LONGEST_TEXT = 1000  # characters
TEXTS = 4096  # the texts of a conversation are encoded with each of its next turns


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place in a rendered conversation for the content of a message, which was held back from the template."""

    number: int


Outline = tuple[str | tuple[int, ...] | Placeholder, ...]
"""A rendered conversation without the messages' contents. A ``str`` in it has not been encoded yet."""


class Chat:
    """A checkpoint's template and tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._whole = read_tokenizer(folder)
        self._plain = plain_of(self._whole)
        self.tokenizer = tokenizer_of(folder)
        if not (text := template_in(folder)):
            raise WeightsError(f"{folder}: has no chat template")
        check_template(text, folder)
        try:
            self._template = Template(text, role_tokens(folder))
        except ValueError as error:
            raise WeightsError(f"{folder}: has a chat template that is not valid Jinja ({error})") from None
        tokens = self._whole.get_added_tokens_decoder()
        self.added: dict[str, int] = {token.content: id for id, token in tokens.items()}
        longest = sorted(self.added, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, longest)))
        dated = "strftime_now" in text  # its result is another every day
        self._outline = self._outlined if dated else lru_cache(OUTLINES)(self._outlined)
        self._known = lru_cache(TEXTS)(self._encoded)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()) -> list[int]:
        """Return the ids of a conversation, up to the start of the assistant's answer."""
        held: list[str | tuple[int, ...]] = []
        shown = [_shown(message, message.ids_of(self.tokenizer), held) for message in messages]
        ids, plain = list[int](), ""
        conversation = json.dumps([shown, [self._tool(tool) for tool in tools]])
        outline = self._outline if len(conversation) <= LONGEST_OUTLINE else self._outlined
        for piece in outline(conversation):
            found = held[piece.number] if isinstance(piece, Placeholder) else piece
            if isinstance(found, str):
                plain += found
            else:
                ids += [*self.encode(plain), *found]
                plain = ""
        return ids + self.encode(plain)

    def _outlined(self, conversation: str) -> Outline:
        """Render messages and tools (as JSON) with the template, with placeholders for the messages' contents."""
        shown, tools = json.loads(conversation)
        try:
            text = self._template.render(shown, tools or None)
        except TemplateError as error:
            raise RequestError(f"messages: this model's chat template rejects them: {error}") from None
        pieces: list[str | tuple[int, ...] | Placeholder] = []
        for i, piece in enumerate(_HELD.split(text)):
            pieces += [Placeholder(int(piece))] if i % 2 else self._marked(piece)
        alone = [
            not any(isinstance(one, Placeholder) for one in pieces[max(0, i - 1) : i + 2]) for i in range(len(pieces))
        ]
        return tuple(
            tuple(self.encode(piece)) if isinstance(piece, str) and by_itself else piece
            for piece, by_itself in zip(pieces, alone, strict=True)
        )

    def _marked(self, text: str) -> Iterator[str | tuple[int, ...]]:
        """Yield the template's text in order: special tokens as ids, and the text between them as strings.

        The strings are encoded later, together with the message contents next to them.
        """
        end = 0
        for mark in self._marks.finditer(text):
            if end < mark.start():
                yield text[end : mark.start()]
            yield (self.added[mark.group()],)
            end = mark.end()
        if end < len(text):
            yield text[end:]

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text, also where the text looks like a special token."""
        return list((self._known if len(text) <= LONGEST_TEXT else self._encoded)(text))

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self._plain.encode(text, add_special_tokens=False).ids) if text else ()

    def text(self, ids: Sequence[int]) -> str:
        """Decode ids to text, without the special tokens."""
        return self._whole.decode(list(ids), skip_special_tokens=True)

    def _tool(self, tool: ToolDefinition) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        written = json.dumps(function, ensure_ascii=False)
        if mark := self._marks.search(written) or _HELD.search(written):
            raise RequestError(
                f"tools: {tool.name!r} contains {mark.group()!r}, which is a special token of this model"
            )
        return {"type": "function", "function": function}


class TextPieces:
    """Decodes a growing answer. A piece is returned once its last character is complete."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._ids: list[int] = []

    def feed(self, id: int) -> tuple[str, list[int]]:
        """Add an id. Return the next piece of text and its ids; both are empty while a character is incomplete."""
        self._ids.append(id)
        text = self._chat.text(self._ids)
        if text.endswith("�") and len(self._ids) < LONGEST_CHARACTER:
            return "", []
        return self.flush()

    @property
    def held(self) -> list[int]:
        """The ids of the incomplete character."""
        return list(self._ids)

    @property
    def whole(self) -> bool:
        """Whether no character is incomplete."""
        return not self._ids

    def flush(self) -> tuple[str, list[int]]:
        """Return the text and ids that are held back, even if a character is incomplete."""
        ids = self._ids
        self._ids = []
        return self._chat.text(ids), ids


def tokenizer_of(folder: Path) -> str:
    """Return the name of a checkpoint's tokenizer, computed from its vocabulary files.

    The chat template does not count, because it changes no id.
    """
    digest = hashlib.sha256()
    for name in _VOCABULARY:
        file = folder / name
        digest.update(file.read_bytes() if file.exists() else b"-")
    return f"sha256:{digest.hexdigest()[:16]}"


def _shown(message: Message, ids: tuple[int, ...], held: list[str | tuple[int, ...]]) -> dict[str, Any]:
    """Return a message in the form that templates read, with its contents held back.

    ``held`` receives the contents: the raw ``ids`` of an answer if they are known, otherwise its text.
    """

    def hold(words: str | tuple[int, ...]) -> str:
        held.append(words)
        return f"\ue000{len(held) - 1}\ue001"

    if ids:
        return {"role": message.role, "content": hold(ids)}
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case TextPart(text):
                content.append({"type": "text", "text": hold(text)})
            case AudioPart(pcm, transcript) if message.role == "assistant" or pcm is None:
                content.append({"type": "text", "text": hold(transcript or "")})
            case AudioPart():
                content.append({"type": "audio", "audio": ""})
            case ImagePart():
                content.append({"type": "image", "image": ""})
            case VideoPart():
                content.append({"type": "video", "video": ""})
            case ToolCallPart(name, arguments):
                calls.append({"type": "function", "function": {"name": hold(name), "arguments": hold(arguments)}})
            case ToolResultPart(_, output):
                content.append({"type": "text", "text": hold(output)})
    words = [one["text"] for one in content if one["type"] == "text"]
    shown = {"role": message.role, "content": "".join(words) if len(words) == len(content) else content}
    return shown | ({"tool_calls": calls} if calls else {})
