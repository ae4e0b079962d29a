"""The command line: the commands, their options, and the report of a mistake. Their work lies in app/commands.

A mistake is one sentence on standard error and exit code 1; 2 is a wrong use of the command line itself.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from app.commands import flags, terminal
from app.commands.cli_errors import cli_errors
from app.commands.deployment import deployment, part_options, with_server, written
from app.commands.moved_options import MOVED_FROM_BENCH, moved_options
from engine import Request, Sampling
from engine.deployment.installation import DISTRIBUTION

_DEFAULT = Request(id="", session="", messages=())


class _Commands(TyperGroup):
    """All commands. A mistake in one of them is reported as one sentence."""

    def invoke(self, ctx: Any) -> Any:
        with cli_errors():
            return super().invoke(ctx)


cli = typer.Typer(
    name="parley",
    cls=_Commands,
    help="A server for real-time voice conversations.\n\n"
    "Begin with `parley serve`, and open the address that it prints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The `parley` command."""
    cli()


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"parley {importlib.metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version of Parley.")
    ] = False,
) -> None:
    """Options that precede a command."""


@cli.command()
def serve(
    configs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG]...",
            help="A YAML file, or the name of one in configs/. Default: `starter`, or `nano` until the models of the "
            "starter are downloaded. Of several, clients select one by its name; the first one is the default, and has "
            "the server's settings.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")] = None,
    https: Annotated[
        str | None,
        typer.Option(metavar="auto|FILE", help="Serve https with this certificate; `auto` creates a self-signed one."),
    ] = None,
    https_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate's private key, if it is in another file.")
    ] = None,
    qr: Annotated[bool, typer.Option("--qr", help="Print the page's address as a QR code for a phone.")] = False,
    record: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Record sessions whose clients connect with ?record=true to this folder."),
    ] = None,
    weights: flags.Weights = None,
    ears: flags.Ears = None,
    thinker: flags.Thinker = None,
    thinker_key_file: flags.ThinkerKey = None,
    voice: flags.VoicePart = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the configuration for these options, and exit.")
    ] = False,
) -> None:
    """Start the server: a page at `/`, the Realtime API at `/v1/realtime`, OpenAI's HTTP API at `/v1`.

    Example: `parley serve configs/nano.yaml --port 8080`

    Use a language model in Ollama: `parley serve --thinker ollama:qwen3.5:4b`

    Use a GGUF file: `parley serve --thinker gguf:model.gguf`

    Talk from a phone in your network: `parley serve --host 0.0.0.0 --https auto --qr`

    Serve several models: `parley serve starter nano`
    """
    from app.commands.serve import further, run_server
    from app.commands.starter import starter_or_nano
    from app.settings import settings_of

    config, more = (configs[0], configs[1:]) if configs else (None, [])
    parts = flags.served_parts(thinker, thinker_key_file, ears, voice)
    if more:
        flags.only_one(parts, weights=weights, print_config=print_config)
    if config is None and weights is None and parts.thinker is None and parts.ears is None:
        config = starter_or_nano(terminal.say)
    spec = deployment(config, weights=weights, parts=parts)
    spec = with_server(spec, {"host": host, "port": port, "https": https, "https_key": https_key, "recordings": record})
    if print_config:
        settings_of(spec.server)  # a mistake there is one of the server's, which is not started
        typer.echo(written(spec), nl=False)
    else:
        run_server(spec, options=part_options(spec, parts), qr=qr, others=further(more, spec))


@cli.command()
def say(
    text: Annotated[str, typer.Argument(help="Text to speak; - reads standard input.")],
    output: flags.Output = None,
    voice: flags.Voice = None,
    guidance: Annotated[
        float,
        typer.Option(
            min=0,
            max=10,
            help="Classifier-free guidance: how closely speech follows the text, if the model supports it; 1 is off.",
        ),
    ] = 1.0,
    url: flags.Served = None,
    key_file: flags.ServedKey = None,
    config: flags.Config = None,
    model: flags.Model = None,
    weights: flags.Weights = None,
) -> None:
    """Speak a given text.

    Without -o the audio is played; on a machine without a loudspeaker it is written to say.wav.

    Example: `parley say "Hello there." -o - | aplay -r 24000 -f S16_LE`
    """
    from app.commands import speak

    flags.only_here(url, guidance=guidance != 1)
    speak.say(flags.target(url, key_file, config, model, weights), _text(text), output, voice, guidance)


@cli.command()
def ask(
    text: Annotated[str | None, typer.Option(help="Question as text.")] = None,
    audio: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recording of a question (WAV, FLAC, OGG, MP3, M4A, MP4 or WebM)."),
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="PNG or JPEG picture. Repeat the option for more.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Instructions for the model, sent as a system message.")] = None,
    url: flags.Served = None,
    key_file: flags.ServedKey = None,
    model: flags.Model = None,
    weights: flags.Weights = None,
    voice: flags.Voice = None,
    greedy: flags.Greedy = False,
    seed: flags.Seed = 0,
    max_text_tokens: flags.MaxTextTokens = _DEFAULT.max_text_tokens,
    max_seconds: flags.MaxSeconds = _DEFAULT.max_audio_s,
    max_frames: Annotated[int | None, typer.Option(hidden=True)] = None,
    output: flags.Output = None,
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write token ids, codes and samples to this .npz file.")
    ] = None,
    config: flags.Config = None,
) -> None:
    """Ask one question: pictures, a recording and text in one message.

    The answer's text goes to standard output. Its audio goes to the file of -o, or without -o to the loudspeaker.

    Example: `parley ask --text "What is two plus three?" -o answer.wav`
    """
    from app.commands import speak

    if max_frames is not None:
        raise typer.BadParameter("--max-frames is --max-seconds now: give the longest answer in seconds of speech")
    flags.only_here(url, dump=dump is not None, max_seconds=max_seconds != _DEFAULT.max_audio_s)
    question = speak.SpeakRequest(
        text=text,
        audio=audio,
        images=tuple(image or ()),
        system=system,
        voice=voice,
        sampling=Sampling(greedy=greedy, seed=seed),
        max_text_tokens=max_text_tokens,
        max_audio_s=max_seconds,
        dump=dump is not None,
    )
    speak.ask(flags.target(url, key_file, config, model, weights), question, output, dump)


@cli.command()
def chat(
    output: flags.Output = None,
    voice: flags.Voice = None,
    greedy: flags.Greedy = False,
    seed: flags.Seed = 0,
    url: flags.Served = None,
    key_file: flags.ServedKey = None,
    config: flags.Config = None,
    thinker: flags.Thinker = None,
    thinker_key_file: flags.ThinkerKey = None,
) -> None:
    """Start a typed conversation. Answers stream as text, and as audio to the loudspeaker or -o.

    Example: `parley chat -o answers.wav`
    """
    from app.commands.chat import chat as talk

    target = flags.target(url, key_file, config, named=flags.parts(thinker, thinker_key_file))
    talk(target, output, voice, Sampling(greedy=greedy, seed=seed))


@cli.command("replay")
def replay_session(
    recording: Annotated[Path, typer.Argument(help="A recording: the .jsonl file. Its .wav files must be beside it.")],
    config: Annotated[
        str | None,
        typer.Argument(help="Another configuration: a YAML file, or the name of one. Default: the recording's own."),
    ] = None,
    pytest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a pytest case of this recording instead, with a copy beside it."),
    ] = None,
) -> None:
    """Run a recorded session again, faster than real time, and print the differences.

    Exits with 0 if the server's events are equal, 1 if they differ, 2 if the recording is damaged.

    Example: `parley replay recordings/20261128T101500-rec_5b1f.jsonl`

    Example: `parley replay call.jsonl --pytest tests/test_call.py`
    """
    from app.commands import replay

    code = replay.run_replay(recording, config) if pytest is None else replay.write_case(recording, pytest)
    raise typer.Exit(code)


@cli.command()
def simulate(
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO.yaml…", help="Scenario files.")],
    url: flags.Served = None,
    key_file: flags.ServedKey = None,
    config: flags.Config = None,
    llm: Annotated[
        str | None,
        typer.Option(metavar="FORM", help="Language model of the caller and the judge, as `serve --thinker` names it."),
    ] = None,
    llm_key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the API key for --llm. No other user may read it.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Number of calls for each scenario; prints the pass rate.")] = 1,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML to this file.")
    ] = None,
) -> None:
    """Test an assistant: simulated callers talk to it, and the answers are compared with expectations.

    Exits with 0 if all expectations hold, 1 if one fails, 2 if a scenario is invalid or the server is unreachable.

    Example: `parley simulate examples/scenario.yaml --config nano`

    Example: `parley simulate calls/*.yaml --url http://127.0.0.1:8000 --runs 10 --junit results.xml`
    """
    from app.simulation.command import SimulationOptions, run_simulation

    flags.only_here(url, config=config is not None)
    if url is None and key_file is not None:
        raise typer.BadParameter("--key-file requires --url")
    options = SimulationOptions(
        url=url, key_file=key_file, config=config, llm=llm, llm_key_file=llm_key_file, runs=runs, junit=junit
    )
    raise typer.Exit(run_simulation(scenarios, options))


@cli.command()
def voices(
    url: flags.Served = None,
    key_file: flags.ServedKey = None,
    config: flags.Config = None,
    model: flags.Model = None,
    weights: flags.Weights = None,
) -> None:
    """List the voices of a model or a server: id, name and language.

    Example: `parley voices`

    Example: `parley voices --url http://127.0.0.1:8000`
    """
    from app.commands import voices as listing

    listing.voices(flags.target(url, key_file, config, model, weights))


@cli.command()
def models() -> None:
    """List the models that `parley pull` can download, with size, languages and licence."""
    from app.commands import models as listing

    listing.models()


@cli.command()
def pull(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Models to download; `parley models` lists them.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", help="Download the missing models of this configuration."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Take the files from this folder, or from its subfolder NAME, without a network.",
        ),
    ] = None,
    hub: Annotated[str, typer.Option(metavar="URL", help="Hub to download from.")] = "https://huggingface.co",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with your token for gated models. Default: the token of `hf auth login`.",
        ),
    ] = None,
    agree: Annotated[
        bool, typer.Option("--agree", help="Accept the licence of a model that is not free, after reading it.")
    ] = False,
) -> None:
    """Download models and check their hashes. An interrupted download continues. `serve` downloads nothing.

    Example: `parley pull zipformer-en`, or all models of a configuration: `parley pull --config starter`
    """
    from app.commands import models as listing
    from app.commands.starter import missing_of

    wanted = [*(names or []), *(model.name for model in (missing_of(config) if config else ()))]
    if not names and config is None:
        raise typer.BadParameter("name a model, or a configuration with --config")
    for name in dict.fromkeys(wanted):
        folder = source / name if source is not None and (source / name).is_dir() else source
        listing.pull(name, folder, hub, token_file, agree)


@cli.command()
def quantize(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Folder with config.json and safetensors.")],
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the new checkpoint; must not exist.")],
    bits: Annotated[int, typer.Option(help="Bits per weight: 4 or 8.")] = 4,
    group: Annotated[
        int, typer.Option(help="Inputs that share a scale. Smaller groups are more exact and need more memory.")
    ] = 128,
) -> None:
    """Quantize a checkpoint's language models to 4 or 8 bits. Needs no GPU.

    Example: `parley quantize ./Qwen3-Omni-30B-A3B-Instruct ./qwen3-omni-int4`
    """
    from app.commands import quantize as quantizing

    quantizing.quantize(checkpoint, out, bits, group)


@cli.command()
def setup() -> None:
    """Recommend a configuration for this machine, and print the command that starts it.

    Uses no network and changes nothing.

    Example: `parley setup`
    """
    from app.commands.setup import setup as recommend

    recommend()


@cli.command()
def doctor(
    config: flags.Config = None,
    ears: flags.Ears = None,
    thinker: flags.Thinker = None,
    thinker_key_file: flags.ThinkerKey = None,
    voice: flags.VoicePart = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the server, if it differs from the configuration's.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the server, if it differs from the configuration's.")
    ] = None,
) -> None:
    """Check this machine, the model and the settings, and name the next step for each problem.

    Exits with 1 if a check fails; warnings do not count.

    Example: `parley doctor --port 8080`
    """
    from app.commands.doctor import doctor as examine

    spec = deployment(config, parts=flags.served_parts(thinker, thinker_key_file, ears, voice))
    well = examine(with_server(spec, {"host": host, "port": port}))
    raise typer.Exit(int(not well))


@cli.command(cls=moved_options(MOVED_FROM_BENCH))
def bench(
    url: Annotated[
        str | None, typer.Option(help="Any running server of the OpenAI Realtime API: https://host/v1.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the API key of the server at --url.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model name to request from the server at --url.")] = "bench",
    speech: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recording of a question, sent to the server.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure with fewer repetitions, in less than a minute.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.05, help="Minutes of full load (ignored with --quick).")] = 1.0,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file.")
    ] = None,
    weights: flags.Weights = None,
    config: flags.Config = None,
) -> None:
    """Measure this machine: first audio, real-time factor, hand-overs, underruns and memory.

    Let nothing else run meanwhile. With --url, measure a running server as a client sees it.

    Example: `parley bench --quick --json figures.json`

    Example: `parley bench --url wss://api.openai.com/v1 --key-file key --model gpt-realtime --speech hello.wav`
    """
    from app.bench import run_bench, stoppable
    from app.bench.subject import Served
    from app.bench.target import spoken, target_of

    with cli_errors(), stoppable():
        spec, served = deployment(config, weights=weights), Served(config, weights, speech and spoken(speech))
        target = None if url is None else target_of(url, model, key_file, speech)
        passed = run_bench(spec, served, target, None if quick else minutes, json_path)
    raise typer.Exit(int(not passed))


@cli.command()
def worker(
    join: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address in the server's `cluster.listen`.")],
    token_file: Annotated[
        str, typer.Option(metavar="FILE", help="The server's `cluster.token_file`, or a copy of it.")
    ],
    stages: Annotated[str, typer.Option(metavar="STAGE,…", help="Stages to host.")],
    replicas: Annotated[int, typer.Option(min=1, help="Number of replicas of each stage.")] = 1,
    devices: Annotated[str, typer.Option(metavar="DEVICE,…", help="Device of each replica, or `cpu` for all.")] = "cpu",
    address: Annotated[str, typer.Option(metavar="IP", help="This machine's address to connect from.")] = "",
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the server.")] = 300.0,
) -> None:
    """Host stages for a server on another machine. After SIGTERM, running answers are finished.

    Example: `parley worker --join 10.0.0.1:7000 --token-file token --stages talker,code2wav --replicas 2`
    """
    from app.commands.worker import WorkerOffer, run_workers

    offer = WorkerOffer(join, token_file, stages, tuple(devices.split(",")), replicas, address, wait)
    ended_well = run_workers(offer)
    raise typer.Exit(int(not ended_well))


@cli.command()
def workers(key_file: flags.KeyFile, url: flags.Url = flags.LOCAL) -> None:
    """List the workers of a running server: stage, replica, state, load.

    Example: `parley workers --key-file admin.key`
    """
    from app.commands import admin

    admin.workers(flags.Address(url, key_file))


@cli.command()
def scale(
    wishes: Annotated[
        list[str], typer.Argument(metavar="STAGE=COUNT...", help="Stage and number of replicas, like talker=3.")
    ],
    key_file: flags.KeyFile,
    url: flags.Url = flags.LOCAL,
) -> None:
    """Start or drain replicas of a running server's stages.

    Example: `parley scale talker=3 --key-file admin.key`
    """
    from app.commands import admin

    admin.scale(flags.Address(url, key_file), wishes)


@cli.command()
def restart(
    key_file: flags.KeyFile,
    rolling: Annotated[
        bool,
        typer.Option("--rolling", help="Replace the workers one after the other, so that no answer is interrupted."),
    ] = False,
    url: flags.Url = flags.LOCAL,
) -> None:
    """Replace every worker of a running server. A worker ends after its successor is ready.

    Example: `parley restart --rolling --key-file admin.key`
    """
    from app.commands import admin

    if not rolling:
        raise typer.BadParameter(
            "--rolling is needed here; to restart all workers at once, end the server and start it again"
        )
    admin.restart(flags.Address(url, key_file))


def _text(text: str) -> str:
    return typer.get_text_stream("stdin").read() if text == "-" else text
