"""Chat templates, rendered as transformers renders them, and no more than they may."""

from __future__ import annotations

from typing import Any

import pytest
import transformers
from jinja2 import TemplateError
from packaging.version import Version
from transformers.utils.chat_template_utils import render_jinja_template

from engine.worker.text.chat_template import Template
from tests.oracles.tiny_qwen3_omni import TEMPLATE

NAMES = {"eos_token": "<|im_end|>"}
MESSAGES = [
    {"role": "system", "content": "Be <kind> & 'good'."},
    {"role": "user", "content": [{"type": "text", "text": "Ä"}, {"type": "image", "image": ""}, {"type": "audio"}]},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "ü <b>", "parameters": {"b": 1, "a": [2]}}}]


def expected(text: str, tools: Any = None) -> str:
    names: dict[str, Any] = {**NAMES}
    found, _ = render_jinja_template([MESSAGES], tools=tools, chat_template=text, add_generation_prompt=True, **names)
    return found[0]


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize(
    "text",
    [
        TEMPLATE,
        "{{ eos_token }}{{ documents is none }}{{ tools | tojson(indent=2) }}{{ messages | tojson(sort_keys=true) }}",
        "{% for one in messages %}\n  {% if loop.index == 2 %}{% continue %}{% endif %}\n{{ one.role }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for one in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "{% set n = 1 %}{% generation %}{% set n = 2 %}{{ messages[0].content }}{{ n }}{% endgeneration %}{{ n }}",
        "{{ dict(a=1, **{'b': 2}) | tojson }}{{ dict.fromkeys(['x'], 1) | tojson }}{{ namespace(a=1).a }}",
        "{% if false %}{{ raise_exception('no') }}{% endif %}{{ strftime_now('%Y') }}{{ nothing }}",
    ],
)
def test_a_conversation_is_rendered_as_the_reference_does(text: str, tools: Any) -> None:
    assert Template(text, NAMES).render(MESSAGES, tools) == expected(text, tools)


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.mro() }}",
        "{{ dict.__class__.mro() }}",
        "{% set ns = namespace(_a=1) %}",
        "{% set ns = namespace() %}{% set ns._a = 1 %}",
        "{{ nothing.there }}",
    ],
)
def test_what_the_reference_refuses_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        Template(text, NAMES).render(MESSAGES, None)
    if "_a" in text and Version(transformers.__version__) < Version("5.23"):
        pytest.skip("an older transformers lets names begin with an underscore")
    with pytest.raises(TemplateError):
        expected(text)


def test_text_that_is_no_template_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"^line 2: "):
        Template("Hello\n{% for %}", {})
