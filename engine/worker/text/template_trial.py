"""Renders short conversations with a chat template, in a process with limits of memory and CPU time.

``check_template`` starts it as ``python -m parley_voice.engine.worker.text.template_trial``, with the template as its
standard input.
"""

from __future__ import annotations

import sys

from jinja2 import TemplateError

from engine.ipc import process_limits
from engine.worker.text.chat_template import Template

_CPU_S = 2
"""CPU time of the trial. Published templates take less than 0.1 s, and as much to compile."""
_MEMORY_BYTES = 256 << 20
"""Address space that the template may add."""
_LONGEST_PROMPT = 200_000
"""Characters of the prompt of a short conversation."""
_USER = {"role": "user", "content": "What is the weather in Paris?"}
_CALL = {"type": "function", "id": "000000001", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "A city."}}, "required": ["city"]}
_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Report it.", "parameters": _SCHEMA}}]
_CALLED = [
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "000000001", "name": "weather", "content": "Sunny."},
    {"role": "assistant", "content": "It is sunny."},
    _USER,
]
_CONVERSATIONS = [
    ([_USER], None),
    ([{"role": "system", "content": "Be brief."}, _USER], None),
    ([_USER, *([{"role": "assistant", "content": "It is sunny."}, _USER] * 10)], None),
    ([{"role": "user", "content": [{"type": "text", "text": "Hello."}]}], None),
    ([{"role": "system", "content": "Be brief."}, _USER, *_CALLED], _TOOLS),
]


def main() -> int:
    """Return 1 if the template takes too much. At a limit, the system ends this process."""
    text = sys.stdin.buffer.read().decode()
    process_limits.limit_memory(_MEMORY_BYTES)
    process_limits.limit_cpu(_CPU_S)
    try:
        template = Template(text, {"bos_token": "<s>", "eos_token": "</s>"})
        longest = max(_length(template, number) for number in range(len(_CONVERSATIONS)))
    except ValueError:
        return 0
    except (MemoryError, OverflowError, RecursionError):  # the sandbox refuses long ranges
        return 1
    return int(longest > _LONGEST_PROMPT)


def _length(template: Template, number: int) -> int:
    messages, tools = _CONVERSATIONS[number]
    try:
        return len(template.render(messages, tools))
    except TemplateError as error:
        if isinstance(error.__cause__, MemoryError | OverflowError | RecursionError):
            raise error.__cause__ from None
        return 0


if __name__ == "__main__":
    sys.exit(main())
