"""The command line: the commands, their options, and the report of a mistake. Their work lies in app/commands.

A mistake is one sentence on standard error and exit code 1; 2 is a wrong use of the command line itself.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from app.commands import terminal
from app.commands.deployment import Parts, deployment, written
from app.commands.finding_thinker import AUTO, found
from app.commands.server import Address
from app.commands.sink import ListenerGone
from app.commands.source import Target
from app.media import MediaError
from engine import EngineError, Request, Sampling

_DEFAULT = Request(id="", session="", messages=())

cli = typer.Typer(
    name="parley",
    help="A voice that answers at once: a streaming speech server, and its parts to try one by one.\n\n"
    "Begin with `parley serve`, and open the address that it prints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    str | None, typer.Option("--config", "-c", help="The configuration: a YAML file, or a name in configs/.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="FILE",
        help="Write the sound to this file (.wav, .mp3, .flac, .ogg, .opus or .aac); "
        "- writes raw 16-bit mono samples at 24 kHz to standard output.",
    ),
]  # fmt: skip
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
Ears = Annotated[str | None, typer.Option(metavar="NAME", help="Hear with these ears; `parley models` lists them.")]
VoicePart = Annotated[
    str | None, typer.Option("--voice", metavar="NAME", help="Speak with this voice; `parley models` lists them.")
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


def main() -> None:
    """The `parley` command."""
    cli()


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"parley {importlib.metadata.version('parley')}")
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version of Parley.")
    ] = False,
) -> None:
    """Options of every command."""


@cli.command()
def serve(
    config: Annotated[str, typer.Argument(help="The configuration: a YAML file, or a name in configs/.")] = "nano",
    host: Annotated[str | None, typer.Option(help="The address to listen at; 0.0.0.0 opens it to others.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to listen at; 0 takes any free one.")
    ] = None,
    https: Annotated[
        str | None,
        typer.Option(metavar="auto|FILE", help="Serve https with the certificate in this file; `auto` makes one."),
    ] = None,
    https_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate's key, if it is in another file.")
    ] = None,
    weights: Weights = None,
    ears: Ears = None,
    thinker: Thinker = None,
    thinker_key_file: ThinkerKey = None,
    voice: VoicePart = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the configuration that these options stand for, and end.")
    ] = False,
) -> None:
    """Serve a model: a page to talk to at `/`, the Realtime API at `/v1/realtime`, OpenAI's HTTP API at `/v1`.

    Example: `parley serve configs/nano.yaml --port 8080`

    With the language model that you run already: `parley serve --thinker ollama:qwen3.5:4b`

    With one that lies in a file: `parley serve --thinker gguf:model.gguf`; in a folder: `--thinker vllm:FOLDER`

    For phones in your network: `parley serve --host 0.0.0.0 --https auto`
    """
    from app.commands.serve import run_server

    with plainly():
        spec = deployment(config, weights=weights, parts=_parts(thinker, thinker_key_file, ears, voice))
        flags = {"host": host, "port": port, "https": https, "https_key": https_key}
        if print_config:
            typer.echo(written(spec), nl=False)
        else:
            run_server(spec, flags)


@cli.command()
def say(
    text: Annotated[str, typer.Argument(help="The text to speak; - reads it from standard input.")],
    output: Output = None,
    voice: Voice = None,
    guidance: Annotated[
        float,
        typer.Option(
            min=0, max=10, help="How much more closely speech follows its text, if the model can be guided; 1 is off."
        ),
    ] = 1.0,
    url: Served = None,
    key_file: ServedKey = None,
    config: Config = None,
    model: Model = None,
    weights: Weights = None,
) -> None:
    """Speak a text as it stands, streaming.

    Without -o the sound comes from the loudspeaker; on a machine without one it goes to say.wav.

    Example: `parley say "Hello there." -o - | aplay -r 24000 -f S16_LE`
    """
    from app.commands import speak

    with plainly():
        _only_here(url, guidance=guidance != 1)
        speak.say(_target(url, key_file, config, model, weights), _text(text), output, voice, guidance)


@cli.command()
def ask(
    text: Annotated[str | None, typer.Option(help="The question as text.")] = None,
    audio: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A recording to be heard (WAV, FLAC, OGG, MP3, M4A, MP4 or WebM)."),
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A PNG or JPEG picture; the option may be repeated.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Instructions for the model, sent as a system message.")] = None,
    url: Served = None,
    key_file: ServedKey = None,
    model: Model = None,
    weights: Weights = None,
    voice: Voice = None,
    greedy: Greedy = False,
    seed: Seed = 0,
    max_text_tokens: Annotated[
        int, typer.Option(min=1, help="The longest answer, in tokens of text.")
    ] = _DEFAULT.max_text_tokens,
    max_seconds: Annotated[
        float, typer.Option(min=0.01, help="The longest answer, in seconds of speech.")
    ] = _DEFAULT.max_audio_s,
    max_frames: Annotated[int | None, typer.Option(hidden=True)] = None,
    output: Output = None,
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write token ids, codes and samples to this .npz file.")
    ] = None,
    config: Config = None,
) -> None:
    """Ask one thing: pictures, then a recording, then text, in one user message.

    The answer's text goes to standard output, its sound to -o or the loudspeaker.

    Example: `parley ask --text "What is two plus three?" -o answer.wav`
    """
    from app.commands import speak

    with plainly():
        if max_frames is not None:
            raise typer.BadParameter("--max-frames is --max-seconds now: give the longest answer in seconds of speech")
        _only_here(url, dump=dump is not None, max_seconds=max_seconds != _DEFAULT.max_audio_s)
        question = speak.Question(
            text=text, audio=audio, images=tuple(image or ()), system=system, voice=voice,
            sampling=Sampling(greedy=greedy, seed=seed), max_text_tokens=max_text_tokens, max_audio_s=max_seconds,
            dump=dump is not None,
        )  # fmt: skip
        speak.ask(_target(url, key_file, config, model, weights), question, output, dump)


@cli.command()
def chat(
    output: Output = None,
    voice: Voice = None,
    greedy: Greedy = False,
    seed: Seed = 0,
    url: Served = None,
    key_file: ServedKey = None,
    config: Config = None,
    thinker: Thinker = None,
    thinker_key_file: ThinkerKey = None,
) -> None:
    """Talk by typing: answers stream as text, and as sound from the loudspeaker or into -o.

    Example: `parley chat -o answers.wav`
    """
    from app.commands.chat import chat as talk

    with plainly():
        target = _target(url, key_file, config, parts=_parts(thinker, thinker_key_file))
        talk(target, output, voice, Sampling(greedy=greedy, seed=seed))


@cli.command()
def voices(
    url: Served = None,
    key_file: ServedKey = None,
    config: Config = None,
    model: Model = None,
    weights: Weights = None,
) -> None:
    """List the voices that --voice takes: id, name, language. No engine is started.

    Example: `parley voices`

    Example: `parley voices --url http://127.0.0.1:8000`
    """
    from app.commands import voices as listing

    with plainly():
        listing.voices(_target(url, key_file, config, model, weights))


@cli.command()
def models() -> None:
    """List the models that have a name: ears, thinkers and voices, their licences, and which of them are here."""
    from app.commands import models as listing

    with plainly():
        listing.models()


@cli.command()
def pull(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME…", help="The models to fetch; `parley models` lists them.")
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="Take the files from this folder; no network is asked."),
    ] = None,
    hub: Annotated[str, typer.Option(metavar="URL", help="The hub to take them from.")] = "https://huggingface.co",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This file holds your token for the hub, for gated models.")
    ] = None,
    agree: Annotated[
        bool, typer.Option("--agree", help="Agree to the licence of a model that is not free, once you have read it.")
    ] = False,
) -> None:
    """Bring models to this machine: checked, and from where an earlier pull broke off. `serve` downloads nothing.

    Example: `parley pull zipformer-en`
    """
    from app.commands import models as listing

    with plainly():
        for name in names:
            listing.pull(name, source, hub, token_file, agree)


@cli.command()
def doctor(
    config: Config = None,
    ears: Ears = None,
    thinker: Thinker = None,
    thinker_key_file: ThinkerKey = None,
    voice: VoicePart = None,
    host: Annotated[str, typer.Option(help="The address at which the server is to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port at which the server is to listen.")] = 8000,
) -> None:
    """Look for what could keep Parley from working here, and say what to do about it.

    Exit code 1 if something fails; warnings don't.

    Example: `parley doctor --port 8080`
    """
    from app.commands.doctor import doctor as examine

    with plainly():
        well = examine(deployment(config, parts=_parts(thinker, thinker_key_file, ears, voice)), host, port)
    raise typer.Exit(int(not well))


@cli.command()
def bench(
    url: Annotated[str | None, typer.Option(help="A running server of any make: https://host/v1.")] = None,
    key_file: Annotated[str | None, typer.Option(metavar="FILE", help="This file holds that server's API key.")] = None,
    model: Annotated[str, typer.Option(help="The name of the model to ask that server for.")] = "bench",
    speech: Annotated[Path | None, typer.Option(metavar="FILE", help="A recording to play to the server.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure with fewer repetitions, in under a minute.")] = False,
    minutes: Annotated[float, typer.Option(min=0.05, help="Minutes of full load (ignored with --quick).")] = 1.0,
    json_path: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with `transformers` on the same weights, or with its `bare` forwards.")
    ] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Compare each technique with its absence, in one run.")
    ] = False,
    voice_answers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Speak N turns to the server, and list those that failed.")
    ] = None,
    resume: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The file in which --voice-answers keeps its answers, to go on after a stop."
        ),
    ] = Path("voice-answers.jsonl"),
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curve of --against into this file (SVG).")
    ] = None,
    weights: Weights = None,
    config: Config = None,
) -> None:
    """Measure this machine: first audio, real-time factor, hand-overs, underruns, memory.

    Nothing else should run meanwhile. With --url, only what a client can see is measured, of any server that speaks the
    OpenAI Realtime API; with --against, the engine beside another way to compute the same model; with --ablate, what
    each technique saves.

    Example: `parley bench --quick --json figures.json`

    Example: `parley bench --url wss://api.openai.com/v1 --key-file key --model gpt-realtime --speech hello.wav`

    Example: `parley bench --voice-answers 2000 --resume answers.jsonl`

    Example: `parley bench -c qwen3_omni_tiny --weights DIR --against transformers --plot curve.svg`
    """
    from app.bench import run_ablation, run_against, run_bench, run_voice_answers, stoppable
    from app.bench.subject import Served
    from app.bench.target import spoken, target_of

    with plainly(), stoppable():
        served = Served(config, weights, None if speech is None else spoken(speech))
        target = None if url is None else target_of(url, model, key_file, speech)
        if voice_answers is not None:
            passed = run_voice_answers(served, target, voice_answers, resume, json_path)
        elif ablate:
            passed = run_ablation(deployment(config, weights=weights), served, quick, json_path)
        elif against is not None:
            passed = run_against(deployment(config, weights=weights), against, quick, json_path, plot)
        else:
            minutes_of_load = None if quick else minutes
            passed = run_bench(deployment(config, weights=weights), served, target, minutes_of_load, json_path)
    raise typer.Exit(int(not passed))


@cli.command()
def worker(
    join: Annotated[str, typer.Option(metavar="HOST:PORT", help="The address in the server's `cluster.listen`.")],
    token_file: Annotated[
        str, typer.Option(metavar="FILE", help="The file in the server's `cluster.token_file`, or a copy of it.")
    ],
    stages: Annotated[str, typer.Option(metavar="STAGE,…", help="The stages to host.")],
    replicas: Annotated[int, typer.Option(min=1, help="The number of replicas of each stage.")] = 1,
    devices: Annotated[
        str, typer.Option(metavar="DEVICE,…", help="A device for each replica, or `cpu` for all.")
    ] = "cpu",
    address: Annotated[str, typer.Option(metavar="IP", help="This machine's address to connect from.")] = "",
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the server.")] = 300.0,
) -> None:
    """Host stages for a server on another machine. After SIGTERM they finish the answers that they have begun.

    Example: `parley worker --join 10.0.0.1:7000 --token-file token --stages talker,code2wav --replicas 2`
    """
    from app.commands.worker import Offer, run_workers

    with plainly():
        offer = Offer(join, token_file, stages, tuple(devices.split(",")), replicas, address, wait)
        ended_well = run_workers(offer)
    raise typer.Exit(int(not ended_well))


@cli.command()
def workers(key_file: KeyFile, url: Url = LOCAL) -> None:
    """List the workers of a running server: stage, replica, state, load.

    Example: `parley workers --key-file admin.key`
    """
    from app.commands import admin

    with plainly():
        admin.workers(admin.Remote(url, key_file))


@cli.command()
def scale(
    wishes: Annotated[
        list[str], typer.Argument(metavar="STAGE=COUNT...", help="The stage and its number of replicas, like talker=3.")
    ],
    key_file: KeyFile,
    url: Url = LOCAL,
) -> None:
    """Start or drain replicas of a running server's stages.

    Example: `parley scale talker=3 --key-file admin.key`
    """
    from app.commands import admin

    with plainly():
        admin.scale(admin.Remote(url, key_file), wishes)


@cli.command()
def restart(
    key_file: KeyFile,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="Replace the workers one after the other, so that nobody is cut off.")
    ] = False,
    url: Url = LOCAL,
) -> None:
    """Replace every worker of a running server. A worker ends once its successor is ready.

    Example: `parley restart --rolling --key-file admin.key`
    """
    from app.commands import admin

    if not rolling:
        raise typer.BadParameter(
            "--rolling is needed here; to restart all workers at once, end the server and start it again"
        )
    with plainly():
        admin.restart(admin.Remote(url, key_file))


@contextmanager
def plainly() -> Generator[None]:
    """Report an error as one sentence; let an interruption end the command quietly."""
    logging.getLogger("engine").addHandler(logging.NullHandler())
    try:
        yield
    except (EngineError, MediaError) as error:
        terminal.fail(str(error))
        raise typer.Exit(1) from None
    except ListenerGone:
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _parts(thinker: str | None, key_file: str | None, ears: str | None = None, voice: str | None = None) -> Parts:
    """The stages that a command line names; ``auto`` is looked for, and said. Raises ConfigError."""
    if thinker == AUTO:
        thinker, sentence = found()
        terminal.say(sentence)
    return Parts(thinker, key_file, ears, voice)


def _target(
    url: str | None, key_file: str | None, config: str | None, model: str | None = None, weights: str | None = None,
    parts: Parts | None = None,
) -> Target:  # fmt: skip
    """Return the engine or the server that a command asks. Raises EngineError."""
    if url is None:
        if key_file is not None:
            raise typer.BadParameter("--key-file holds the key of a server: say which one with --url")
        return deployment(config, model, weights, parts)
    parts = parts or Parts()
    _only_here(
        url, config=config is not None, model=model is not None, weights=weights is not None,
        thinker=parts.thinker is not None, thinker_key_file=parts.thinker_key_file is not None,
    )  # fmt: skip
    return Address(url, key_file)


def _only_here(url: str | None, **given: bool) -> None:
    """Refuse options of an engine that is started here where a server is asked: they have no effect on it."""
    names = [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]
    if url is not None and names:
        raise typer.BadParameter(f"{', '.join(names)}: a server at --url has its own; leave it out")


def _text(text: str) -> str:
    return typer.get_text_stream("stdin").read() if text == "-" else text
