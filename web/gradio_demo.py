"""The demo at ``/gradio``: the page's voice client inside a Gradio page, with text, pictures, recordings and files.

``python -P -m parley_voice.web.gradio_demo`` serves it (``make demo``; the extra ``demo`` has Gradio). The
conversation runs in the browser, over the same protocol as the page's; Python lays the page out and keeps the table of
figures. Nothing is asked of another machine: analytics, histories and links are off, and a content security policy
keeps the browser at home.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.cli import cli_errors
from app.commands.deployment import deployment, with_server
from app.commands.serve import run_server
from app.service import Service
from engine import ConfigError, ModelInfo
from engine.deployment.installation import install_command

PATH = "/gradio"
TERMS = {
    "turn": "silence that ended the turn",
    "queue": "waiting",
    "ears": "hearing",
    "thinker_prefill": "reading",
    "thinker_tokens": "first words",
    "talker": "speech codes",
    "code2wav": "codes to sound",
    "packet": "packing",
}
"""The terms of the first-audio ledger, in words; those of other stages bear their names."""

ROWS = 50
"""Turns that the table keeps."""

POLICY = "; ".join(
    (
        "default-src 'self' data: blob:",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "frame-ancestors 'self'",
    )
)
"""The sources that Gradio's page needs, and no other host. It makes its code from strings and puts styles where they
are used."""

SAY = "async (message) => ((await window.parley.say(message)) ? { text: '', files: [] } : message)"
"""Empties the box once its content has gone out; else it stays to be sent again."""


def mount(app: FastAPI, service: Service) -> None:
    """Add the demo to a server. Raises ConfigError where keys are set: Gradio's pages could not send one."""
    if service.keys:
        raise ConfigError("server.keys_file: the demo asks for no key, so leave it out, or serve without the demo")
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read as Gradio is imported
    try:
        import gradio
    except ImportError:
        raise ConfigError(f"the demo needs Gradio: {install_command('demo')}") from None

    app.add_middleware(_AtHome)
    app.add_api_route("/favicon.ico", _icon, include_in_schema=False)
    app.add_api_route(PATH, _demo, include_in_schema=False)
    gradio.mount_gradio_app(
        app,
        _page(gradio, service.described),
        PATH,
        theme=gradio.themes.Default(primary_hue="teal"),  # its fonts come with Gradio
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        max_file_size="20mb",
        css="#voice-client .html-container { padding: 0; }",  # its own frame is enough
    )


async def _demo() -> RedirectResponse:
    return RedirectResponse(f"{PATH}/")


async def _icon() -> RedirectResponse:
    """Gradio's page names no icon, and browsers then ask for this one."""
    return RedirectResponse("/icon.svg")


def _page(gradio: Any, model: ModelInfo) -> Any:
    """The page: the voice client, a box for everything that is typed or dropped, and the figures."""
    terms = ["turn", *model.ledger]
    with gradio.Blocks(title="Parley", analytics_enabled=False, delete_cache=(600, 600)) as page:
        where = "\n\n".join(model.notes) or "All of it stays on this server."
        gradio.Markdown(f"# Parley\nTalk, type, or add a picture, a recording or a text. {where}")
        voice = gradio.HTML(
            html_template=_beside("html"),
            css_template=_beside("css"),
            js_on_load=_beside("js"),
            elem_id="voice-client",
            apply_default_css=False,
        )
        box = gradio.MultimodalTextbox(
            placeholder="Type a message, or add a file",
            file_types=["image", "audio", ".txt", ".md"],
            label="Message",
            show_label=False,
        )
        box.submit(None, [box], [box], js=SAY)
        with gradio.Accordion("Where the time to the first sound went, in ms", open=True):
            headers = ["turn", "after", "first sound", *(TERMS.get(name, name) for name in terms)]
            table = gradio.Dataframe(headers=headers, interactive=False, type="array", show_label=False)
        voice.submit(_noted(gradio, terms), [table], [table], show_progress="hidden", api_visibility="private")
    return page


def _noted(gradio: Any, names: Sequence[str]) -> Any:
    def noted(event: gradio.EventData, rows: list[list[Any]]) -> list[list[Any]]:
        """The table with one more turn, the newest first."""
        figure: dict[str, Any] = event._data
        terms: dict[str, float] = figure["terms_ms"]
        kept = [row for row in rows if row and row[0] != ""]
        turn = [int(kept[0][0]) + 1 if kept else 1, figure["after"], round(figure["heard_ms"])]
        return [[*turn, *(round(terms.get(name, 0), 1) for name in names)], *kept][:ROWS]

    noted.__annotations__["event"] = gradio.EventData  # Gradio looks for its class, not for its name
    return noted


def _beside(kind: str) -> str:
    return Path(__file__).with_suffix(f".{kind}").read_text(encoding="utf-8")


class _AtHome:
    """ASGI middleware: what the demo's page may load."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["content-security-policy"] = POLICY
            await send(message)

        demo = scope["type"] == "http" and scope["path"].startswith(PATH)
        await self._app(scope, receive, with_policy if demo else send)


def main(
    config: Annotated[str, typer.Argument(help="A deployment: a YAML file, or a name in configs/.")] = "nano",
    host: Annotated[str | None, typer.Option(help="The address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any free one.")] = None,
    https: Annotated[str | None, typer.Option(metavar="auto|FILE", help="A certificate; `auto` makes one.")] = None,
) -> None:
    """Serve a model with the Gradio demo at /gradio, beside the page at /."""
    with cli_errors():
        spec = with_server(deployment(config), {"host": host, "port": port, "https": https})
        run_server(spec, mount, also=f"{PATH}/")


if __name__ == "__main__":
    typer.run(main)
