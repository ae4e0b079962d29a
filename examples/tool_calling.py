"""Let the model call functions of this program: a timer and the weather.

    python examples/tool_calling.py "Set a timer for ten minutes." --url http://127.0.0.1:8000

The client describes each function by its name, a sentence and the JSON schema of its arguments. When the model calls
one, ``app.client`` runs it, sends the result, and asks for the answer that makes use of it. A plain function runs in a
thread, an ``async`` one in the event loop.
"""

from __future__ import annotations

import argparse
import asyncio

from parley_voice.app.client import ClientError, Tool, connect


def set_timer(minutes: float) -> dict[str, object]:
    print(f"(a timer runs for {minutes:g} minutes)")
    return {"started": True, "minutes": minutes}


async def get_weather(place: str) -> dict[str, object]:
    print(f"(looked up the weather of {place})")
    return {"place": place, "sky": "sunny", "temperature": 21}


MINUTES = {"type": "object", "properties": {"minutes": {"type": "number"}}, "required": ["minutes"]}
PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOLS = (
    Tool("set_timer", "Starts a timer.", set_timer, MINUTES),
    Tool("get_weather", "The weather of a place.", get_weather, PLACE),
)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a question that needs a function.")
    parser.add_argument("question", nargs="?", default="Set a timer for ten minutes.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    chosen = parser.parse_args()
    async with connect(chosen.url, tools=TOOLS) as client:
        answer = await client.ask(chosen.question)
    print(answer.text)
    if answer.error:
        raise SystemExit(answer.error)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ClientError as error:
        raise SystemExit(str(error)) from None
