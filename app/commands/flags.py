"""Options that several commands share, and functions that interpret them."""

from __future__ import annotations

from typing import Annotated

import typer

from app.commands import terminal
from app.commands.deployment import AUTO, Parts, deployment
from app.commands.finding_thinker import found
from app.commands.server import Address
from app.commands.source import Target

Config = Annotated[
    str | None, typer.Option("--config", "-c", help="The configuration: a YAML file, or a name in configs/.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the sound to this file (.wav, .mp3, .flac, .ogg, .opus or .aac); "
        "- writes raw 16-bit mono samples at 24 kHz to standard output.",
    ),
]
Voice = Annotated[str | None, typer.Option(help="A voice of the model; `parley voices` lists them.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")]
Model = Annotated[str | None, typer.Option(help="Another model than the one that the configuration names.")]
Weights = Annotated[str | None, typer.Option(help="A folder of weights, or an id on the Hugging Face hub.")]
Thinker = Annotated[
    str | None,
    typer.Option(
        metavar="FORM",
        help="Let another language model think: one that runs already (ollama:MODEL, lmstudio:MODEL, llamacpp[:PORT], "
        "or openai:MODEL@URL for any server of the kind; auto looks for one on this machine), or one that Parley "
        "runs itself: a file (gguf:PATH), or a checkpoint's folder by vLLM (vllm:PATH, which needs `make vllm` once).",
    ),
]
ThinkerKey = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="This file holds the API key of --thinker; nobody else may be able to read it."),
]
Ears = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH|auto",
        help="Hear with these ears: a name that `parley models` lists, a model's folder, or STAGE:PATH. With "
        "--thinker the default is auto: ears that only know nano's requests give way to pulled ones; nano keeps them.",
    ),
]
VoicePart = Annotated[
    str | None,
    typer.Option(
        "--voice",
        metavar="NAME|PATH",
        help="Speak with this voice: a name that `parley models` lists, a model's folder, or STAGE:PATH.",
    ),
]
LOCAL = "http://127.0.0.1:8000"
Served = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help=f"Ask a server that runs already ({LOCAL}); no engine is started here."),
]
ServedKey = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="This file holds the API key of the server at --url.")
]
Url = Annotated[str, typer.Option(help="The address of the running server.")]
KeyFile = Annotated[
    str, typer.Option(metavar="FILE", help="The admin key: the file that the server's `server.admin_key_file` names.")
]
Seed = Annotated[int, typer.Option(help="The same seed and question give the same answer.")]
MaxTextTokens = Annotated[int, typer.Option(min=1, help="The longest answer, in tokens of text.")]
MaxSeconds = Annotated[float, typer.Option(min=0.01, help="The longest answer, in seconds of speech.")]


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
