"""Chat templates that would stop a worker are refused before the model loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import WeightsError
from engine.worker.text.template_check import check_template
from tests.engine.worker.llm.gguf_files import TEMPLATE

FILE = Path("model.gguf")


@pytest.mark.parametrize(
    "text",
    [
        "{% for _ in range(10**9) %}{% endfor %}",
        "{% for _ in range(99999) %}{% for _ in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10**10 }}",
        "{% set ns = namespace(text='ab') %}{% for _ in range(60) %}{% set ns.text = ns.text ~ ns.text %}{% endfor %}",
        "{% for _ in range(90000) %}{{ messages[0].content }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% if tools %}{{ '%999999999d' % 1 }}{% endif %}",
    ],
)
@pytest.mark.slow
def test_a_costly_template_is_refused(text: str) -> None:
    with pytest.raises(WeightsError, match=r"^model\.gguf: has a chat template that takes too much time or memory"):
        check_template(text, FILE)


@pytest.mark.parametrize("text", [TEMPLATE, "{% for %}", "{{ raise_exception('no tools') }}", "{{ 1 / 0 }}", ""])
def test_an_ordinary_template_passes_and_one_that_is_wrong_is_reported_elsewhere(text: str) -> None:
    check_template(text, FILE)
