"""Options that several commands share, and functions that interpret them."""

from __future__ import annotations

from typing import Annotated

import typer

from app.commands import terminal
from app.commands.deployment import AUTO, Parts, deployment
from app.commands.finding_thinker import found
from app.commands.server import Address
from app.commands.source import Target

Config = Annotated[str | None, typer.Option("--config", "-c", help="A YAML file, or the name of one in configs/.")]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the audio to this file (.wav, .mp3, .flac, .ogg, .opus or .aac); "
        "- writes raw 16-bit mono samples at 24 kHz to standard output.",
    ),
]
Voice = Annotated[str | None, typer.Option(help="A voice of the model; `parley voices` lists them.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always choose the most likely token.")]
Model = Annotated[str | None, typer.Option(help="Use this model instead of the configuration's.")]
Weights = Annotated[str | None, typer.Option(help="A folder of weights, or an id on the Hugging Face hub.")]
Thinker = Annotated[
    str | None,
    typer.Option(
        metavar="FORM",
        help="Use this language model: a server (ollama:MODEL, lmstudio:MODEL, llamacpp[:PORT], openai:MODEL@URL; auto "
        "finds one on this machine), a file (gguf:PATH), a checkpoint's folder in vLLM (vllm:PATH, after `make vllm`), "
        "or a name from `parley models`.",
    ),
]
ThinkerKey = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with the API key for --thinker. No other user may read it."),
]
Ears = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH|auto",
        help="Use this speech recognition: a name from `parley models`, a model's folder, STAGE:PATH or FILE.py:CLASS. "
        "With --thinker the default is auto, which uses a pulled model instead of nano's; nano keeps nano's.",
    ),
]
VoicePart = Annotated[
    str | None,
    typer.Option(
        "--voice",
        metavar="NAME|PATH",
        help="Use this voice: a name from `parley models`, a model's folder, STAGE:PATH, FILE.py:CLASS, or a speaker "
        "of the configuration's voice (`parley voices` lists them).",
    ),
]
LOCAL = "http://127.0.0.1:8000"
Served = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help=f"Use a running server, such as {LOCAL}, instead of starting an engine."),
]
ServedKey = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="File with the API key of the server at --url.")
]
Url = Annotated[str, typer.Option(help="The address of the running server.")]
KeyFile = Annotated[
    str, typer.Option(metavar="FILE", help="File with the admin key: the server's `server.admin_key_file`.")
]
Seed = Annotated[int, typer.Option(help="Random seed. The same seed and question give the same answer.")]
MaxTextTokens = Annotated[int, typer.Option(min=1, help="Maximum length of the answer in text tokens.")]
MaxSeconds = Annotated[float, typer.Option(min=0.01, help="Maximum length of the answer in seconds of speech.")]


def parts(thinker: str | None, key_file: str | None, ears: str | None = None, voice: str | None = None) -> Parts:
    """Return the stages of the command line. ``--thinker auto`` is resolved and reported. Raises ConfigError."""
    if thinker == AUTO:
        thinker, sentence = found()
        terminal.say(sentence)
    return Parts(thinker, key_file, ears, voice)


def served_parts(thinker: str | None, key_file: str | None, ears: str | None, voice: str | None) -> Parts:
    """Return a server's stages; its ASR model must understand what its LLM can answer. Raises ConfigError."""
    return parts(thinker, key_file, ears or (AUTO if thinker else None), voice)


def target(
    url: str | None,
    key_file: str | None,
    config: str | None,
    model: str | None = None,
    weights: str | None = None,
    named: Parts | None = None,
) -> Target:
    """Return the engine or the server that a command uses. Raises EngineError."""
    if url is None:
        if key_file is not None:
            raise typer.BadParameter("--key-file requires --url")
        return deployment(config, model, weights, named)
    named = named or Parts()
    only_here(
        url,
        config=config is not None,
        model=model is not None,
        weights=weights is not None,
        thinker=named.thinker is not None,
        thinker_key_file=named.thinker_key_file is not None,
    )
    return Address(url, key_file)


def only_here(url: str | None, **given: bool) -> None:
    """Refuse options for a local engine if a server is used, since they would have no effect."""
    names = [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]
    if url is not None and names:
        raise typer.BadParameter(f"{', '.join(names)}: not with --url, since the server has its own settings")


def only_one(parts: Parts, weights: str | None, print_config: bool) -> None:
    """Refuse options for one configuration, since there are several."""
    if parts != Parts() or weights is not None or print_config:
        options = "--weights, --ears, --thinker, --voice and --print-config"
        raise typer.BadParameter(f"{options}: only for one configuration. Write the parts into its file")
