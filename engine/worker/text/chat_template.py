"""Renders chat templates as Hugging Face does: Jinja in a sandbox, with a few extra functions.

Checkpoints bring their own templates, which are not trusted: a template sees only plain values and can change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


class Template:
    """A chat template. ``names`` are further variables that it may read, such as ``eos_token``.

    Raises ValueError for invalid Jinja.
    """

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        try:
            self._template = _environment().from_string(text)
        except TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}") from None
        self._names = dict(names)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> str:
        """Render a conversation as text, up to the start of the assistant's answer. Raises TemplateError."""
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True}
        try:
            return self._template.render(self._names | given)
        except TemplateError:
            raise
        except Exception as error:  # operators and functions in a template raise Python's own errors
            raise TemplateError(f"{type(error).__name__}: {error}") from error


def _environment() -> jinja2.Environment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    made.filters["tojson"] = _to_json
    functions: dict[str, Any] = {
        "raise_exception": _refuse,
        "strftime_now": _now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    made.globals |= functions
    return made


class _Generation(Extension):
    """The tag ``{% generation %}``, which marks the text that a model is trained on. It does not affect a prompt."""

    tags = frozenset({"generation"})  # pyright: ignore[reportAssignmentType]

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Dict:
    """The function ``dict``, without the attributes of a class."""

    def __call__(self, *pairs: Any, **values: Any) -> dict[Any, Any]:
        return dict(*pairs, **values)

    def fromkeys(self, *given: Any) -> dict[Any, Any]:
        return dict.fromkeys(*given)


class _Namespace(Namespace):
    """Jinja's namespace, without names that begin with an underscore, as Python's internal attributes do."""

    def __init__(*args: Any, **values: Any) -> None:
        self, *pairs = args
        found = dict(*pairs, **values)
        for name in found:
            _check(name)
        Namespace.__init__(self, found)

    def __setitem__(self, name: str, value: Any) -> None:
        _check(name)
        super().__setitem__(name, value)


def _check(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"the chat template must not set {name!r} in a namespace; rename it without the underscore")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Encode as JSON. Jinja's own filter would escape HTML characters."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
