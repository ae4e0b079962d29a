"""Calls the payload builders of vllm-omni 0.22.0 on cases, in a process of its own: the stubs reach nobody else.

    python program.py FOLDER < cases > results

``FOLDER`` is where the wheel is unpacked. A case is (name of a function below, its arguments); all are pickled at once,
and so is the answer: a result for each, and what was not reached of the builders, by function.

Of vLLM the builders need a logger and two types of prompts, which are stubbed here.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import logging
import pickle
import sys
import tempfile
import types
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

OMNI = "vllm_omni"
PROCESSORS = f"{OMNI}.model_executor.stage_input_processors"
COVO, MIMO = (f"{OMNI}.model_executor.models.{name}" for name in ("covo_audio", "mimo_audio"))
BUILDERS = {
    "covo_audio": ["llm2code2wav_full_payload", "_filter_audio_codes"],
    "mimo_audio": [
        "llm2code2wav_full_payload", "_filter_zero_codec_rows", "prepend_and_flatten_colmajor",
        "llm2code2wav_async_chunk", "_flush_remaining_codes", "_make_finished_sentinel", "_to_code_tensor",
    ],
    "cosyvoice3": [
        "text2flow_full_payload", "text2flow_token_only", "talker2code2wav_async_chunk", "_strip_prompt_prefix",
        "_prompt_speech_token_ids", "_has_speech_stop_token", "_set_non_stream_prompt_trim",
        "_build_prompt_embed_struct",
    ],
    "dynin_omni": [
        "token2text_to_token2image_full_payload", "token2image_to_token2audio_full_payload", "_build_full_payload",
        "_decode_runtime_bridge_info", "_normalize_additional_info", "_to_int", "_to_token_id_list",
    ],
    "ming_flash_omni": ["thinker2talker_full_payload", "thinker2talker_token_only"],
    "qwen2_5_omni": ["thinker2talker_full_payload", "talker2code2wav_full_payload", "_strip_codec_boundaries"],
    "qwen3_tts": [
        "talker2code2wav_full_payload", "_filter_audio_codes_qwen3_tts", "_coerce_ref_code_len", "_normalize_ref_code",
        "talker2code2wav_async_chunk", "_extract_last_frame",
    ],
    "qwen3_omni": [
        "thinker2talker_full_payload", "_compute_talker_prompt_ids_length", "_layer_tensor", "_as_tensor_or_none",
        "thinker2talker_async_chunk", "talker2code2wav_full_payload", "_extract_qwen3_full_payload_codec_rows",
        "_is_valid_qwen3_codec_token_id", "talker2code2wav_async_chunk",
    ],
}  # fmt: skip
"""The functions that make the payloads, by their files."""


class Prompt(dict):
    """A prompt of vLLM's."""

    def __init__(self, **fields):
        super().__init__(fields)


def load(root):
    """Import the builders, each file by itself; the packages' own ``__init__`` would import all of vLLM."""
    logger = SimpleNamespace(**dict.fromkeys(("debug", "info", "info_once", "warning", "error"), _silent))
    logging.disable(logging.CRITICAL)
    parents = ["vllm", OMNI, f"{OMNI}.inputs", f"{OMNI}.model_executor", f"{OMNI}.model_executor.models"]
    for name in (*parents, COVO, MIMO, PROCESSORS, f"{OMNI}.engine"):
        _module(name).__path__ = [str(root / name.replace(".", "/"))]
    _module("vllm.logger", init_logger=lambda name: logger)
    _module("vllm.inputs", TextPrompt=Prompt)
    _module("vllm.platforms", current_platform=SimpleNamespace(device_type="cpu"))
    _module(f"{OMNI}.inputs.data", OmniTokensPrompt=Prompt)
    for name in ("OmniEngineCoreRequest", "AdditionalInformationEntry", "AdditionalInformationPayload"):
        setattr(sys.modules[f"{OMNI}.engine"], name, object)
    return {name: importlib.import_module(f"{PROCESSORS}.{name}") for name in BUILDERS}


def _module(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    module.__spec__ = importlib.util.spec_from_loader(name, None)
    sys.modules[name] = module
    if "." in name:
        parent, _, own = name.rpartition(".")
        setattr(sys.modules[parent], own, module)
    return module


def _silent(*values):
    pass


# --- what the builders are given


class Cached:
    """A list of ids as vLLM wraps those that it caches."""

    def __init__(self, ids):
        self._x = list(ids)

    def __iter__(self):
        return iter(self._x)

    def __len__(self):
        return len(self._x)


def request(**fields):
    return SimpleNamespace(request_id="r", **fields)


def manager(config=None, **fields):
    """What keeps the state of all requests between calls."""
    connector = None if config is None else SimpleNamespace(config=config)
    return SimpleNamespace(
        connector=connector, code_prompt_token_ids=defaultdict(list), request_payload={},
        put_req_chunk=defaultdict(int), _pending_streaming_prefills={}, **fields,
    )  # fmt: skip


def keyed(dotted, shape):
    """A payload under its dotted keys, or nested, or as something else that a runner may hand over."""
    if shape == "flat":
        return dict(dotted)
    nested = {}
    for key, value in dotted.items():
        top, _, own = key.partition(".")
        nested.setdefault(top, {})[own] = value
    return nested


def tensor(array):
    return None if array is None else torch.from_numpy(np.array(array))


def array(value):
    return None if value is None else value.numpy() if isinstance(value, torch.Tensor) else np.array(value)


# --- CovoAudio


def covo_whole(builders, ids):
    payload = builders["covo_audio"].llm2code2wav_full_payload(None, {}, request(output_token_ids=ids))
    return None if payload is None else array(payload["codes"]["audio"])


# --- MiMo-Audio


def mimo_whole(builders, codes, shape):
    given = {
        "none": None, "text": {"codes.audio": "none"}, "keyless": {"codes": None},
    }.get(shape, keyed({"codes.audio": tensor(codes)}, shape))  # fmt: skip
    payload = builders["mimo_audio"].llm2code2wav_full_payload(None, given, request())
    return None if payload is None else array(payload["codes"]["audio"])


def mimo_stream(builders, steps, config, end, id):
    """``steps`` are codes of one group each, or a word for a step without; ``end`` is how the last call comes."""
    build, state, found = builders["mimo_audio"].llm2code2wav_async_chunk, manager(config), []
    one = request(external_req_id=id)
    for n, step in enumerate(steps):
        last = end == "with the last" and n == len(steps) - 1
        found.append(build(state, _mimo_step(step), one, last))
    if end != "with the last":
        found.append(build(state, _mimo_step(end), one, True))
    return [
        (array(one.codes.audio), one.meta.left_context_size or 0, bool(one.meta.finished))
        for one in found
        if one is not None
    ]


def _mimo_step(step):
    words = {"nothing": None, "text": {"codes": {}}, "shape": {"codes": {"audio": torch.ones(2, 3)}}}
    if isinstance(step, str):
        return words[step]
    codes, how = step
    return {"codes": {"audio": codes.tolist() if how == "list" else tensor(codes[0] if how == "3-D" else codes)}}


# --- CosyVoice3


def cosyvoice_whole(builders, ids, prompt_ids, voice, shape):
    """The payload of the voice, and what the released release sends beside it: the ids and the offset."""
    module = builders["cosyvoice3"]
    parts = {name: tensor(part) for name, part in voice.items()}
    dotted = {f"embed.{name}": part for name, part in parts.items()}
    given = {"none": None, "empty": {}, "embed": {"embed": "none"}}.get(shape, keyed(dotted, shape))
    payload = module.text2flow_full_payload(None, given, request())
    told = None if payload is None else {name: array(part) for name, part in payload["embed"].items()}
    return told, _cosyvoice_tokens(module, ids, prompt_ids, parts, shape)


def _cosyvoice_tokens(module, ids, prompt_ids, parts, shape):
    token = parts.get("speech_token")
    heard = {
        "flat": {"speech_token": token},
        "nested": {"embed": {"speech_token": token}, "meta": {}},
        "empty": {"embed": None},
        "embed": {"speech_token": None if token is None else [list(token.reshape(-1))]},
    }.get(shape)
    output = SimpleNamespace(cumulative_token_ids=Cached(ids), multimodal_output=heard)
    source = SimpleNamespace(
        request_id="r", finished=shape != "unfinished", prompt_token_ids=list(prompt_ids), outputs=[output]
    )
    try:
        found = module.text2flow_token_only([source])
    except RuntimeError:
        return "refused"
    if not found:
        return None
    (prompt,) = found
    meta = prompt["additional_information"].get("meta") or {}
    return list(prompt["prompt_token_ids"]), meta.get("talker_prefill_offset", 0)


def cosyvoice_stream(builders, steps, voice, config, end, source):
    """``steps`` are the ids of each; after each one the builder is called until it has nothing more."""
    build, state, found = builders["cosyvoice3"].talker2code2wav_async_chunk, manager(config), []
    if source == "bare":
        del state.code_prompt_token_ids
    one = request(external_req_id="r", output_token_ids=[], is_finished=lambda: False)
    parts = {name: tensor(part) for name, part in voice.items()}
    one.additional_information, given = _cosyvoice_source(parts, source)
    try:
        for n, ids in enumerate(steps):
            one.output_token_ids = one.output_token_ids + list(ids)
            last = end == "with the last" and n == len(steps) - 1
            while (payload := build(state, given, one, last)) is not None:
                found.append(payload)
        one.is_finished = lambda: True
        found += [build(state, given, one) for _ in range(2)]  # nothing comes behind the end
    except ValueError:
        return "refused"
    return [_cosyvoice_chunk(payload) for payload in found if payload is not None]


def _cosyvoice_source(parts, source):
    """Where the voice comes from: with the request, or in the stage's output."""
    if source == "request":
        return {"embed": {name: [part] for name, part in parts.items()}}, {"embed": {"embedding": torch.zeros(1, 1)}}
    if source == "request alone":
        return {"embed": parts}, None
    return ({"embed": {name: [] for name in parts}} if source == "output" else None), {"embed": parts}


def _cosyvoice_chunk(payload):
    embed = payload.embed
    voice = None if embed is None else {
        name: array(getattr(embed, name)) for name in ("speech_token", "speech_feat", "embedding")
    }  # fmt: skip
    return array(payload.codes.audio), payload.meta.left_context_size or 0, bool(payload.meta.finished), voice


# --- Dynin-Omni


def dynin_whole(builders, hop, given, drawn, prompt):
    """``given`` are the fields of the stage's output, each with how it is represented."""
    build = getattr(builders["dynin_omni"], hop)
    output = None if given is None else {name: _represented(*one) for name, one in given.items()}
    one = None if prompt == "no request" else request(output_token_ids=drawn, additional_information=prompt)
    payload = build(None, output, one)
    if payload is None:
        return None
    assert bool(payload.pop("meta")["finished"])
    return payload.pop("codes")["audio"], payload


def _represented(value, how):
    match how:
        case "tensor":
            return torch.tensor(value)
        case "batch":
            return torch.tensor([value])
        case "list":
            return list(value)
        case "lists":
            return [list(value)]
        case "json tensor":
            return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
        case "json bytes":
            return json.dumps(value).encode()
        case "json list":
            return list(json.dumps(value).encode())
        case _:
            return value


# --- Ming-Flash-Omni


def ming_whole(builders, text, voice, shape):
    """What the guard lets through as a tensor payload, and what goes to the voice beside it."""
    module = builders["ming_flash_omni"]
    payload = module.thinker2talker_full_payload(None, {"hidden": torch.ones(3, 8)}, request())
    output = SimpleNamespace(text=text) if shape != "no text" else SimpleNamespace()
    prompt = SimpleNamespace(additional_information=voice) if shape != "no prompt" else None
    (one,) = module.thinker2talker_token_only(
        [SimpleNamespace(outputs=[output])], [] if shape == "no prompts" else [prompt] if shape == "list" else prompt
    )
    told = one["additional_information"]
    return payload, {name: array(part) if isinstance(part, torch.Tensor) else part for name, part in told.items()}


# --- Qwen2.5-Omni


def qwen2_5_thought(builders, hidden, prompt_ids, drawn_ids, finish, shape):
    """``finish`` is a status's name, or the sampling's stops where there is none."""
    prompt = Cached(prompt_ids) if prompt_ids else None
    one = request(prompt_token_ids=prompt, output_token_ids=drawn_ids, all_token_ids=None)
    if shape == "all ids":
        one.all_token_ids = tuple(prompt_ids + drawn_ids)
    if isinstance(finish, str):
        one.status = f"RequestStatus.{finish}" if shape == "status as text" else SimpleNamespace(name=finish)
    elif finish is not None:
        one.sampling_params = SimpleNamespace(**finish)
    given = {"none": None, "empty": {}}.get(shape, {"hidden": tensor(hidden)})
    payload = builders["qwen2_5_omni"].thinker2talker_full_payload(None, given, one)
    if payload is None:
        return None
    rows, answer = payload["embed"], payload["hidden_states"]
    assert rows["prefill_shape"] == list(rows["prefill"].shape)
    assert answer["output_shape"] == list(answer["output"].shape)
    return array(rows["prefill"]), array(answer["output"]), payload["ids"]["prompt"], payload["ids"]["output"]


def qwen2_5_codes(builders, ids):
    payload = builders["qwen2_5_omni"].talker2code2wav_full_payload(None, {}, request(output_token_ids=ids))
    return None if payload is None else payload["codes"]["audio"]


# --- Qwen3-TTS


def qwen3_tts_whole(builders, codes, reference, length, drawn, shape):
    """``reference`` and ``length`` with how they are represented."""
    dotted = {"codes.audio": tensor(codes), "codes.ref": _reference(*reference), "meta.ref_code_len": _length(*length)}
    given = {
        "none": None, "empty": {}, "list": {"codes": [], "meta": []},
        "meta": {**dotted, "meta.ref_code_len": None, "meta": 3},
        "codes": {"codes.audio": dotted["codes.audio"], "codes": [], "meta": {}},
        "3-D": {"codes.audio": tensor(codes[None])},
    }.get(shape, keyed(dotted, shape))  # fmt: skip
    payload = builders["qwen3_tts"].talker2code2wav_full_payload(None, given, request(output_token_ids=drawn))
    return None if payload is None else array(payload["codes"]["audio"])


def _reference(frames, how):
    if frames is None:
        return None
    flat = {"flat": frames.reshape(-1), "odd": frames.reshape(-1)[:-1], "3-D": frames[None]}.get(how, frames)
    return [tensor(flat)] if how == "list" else [] if how == "no list" else tensor(flat)


def _length(n, how):
    if how == "tensor":
        return torch.tensor([0, n])
    return torch.zeros(0) if how == "no tensor" else n


def qwen3_tts_stream(builders, frames, reference, config, end, override):
    """``frames`` is one row for each call, or a word. Returns the windows, and how long the first one was to be."""
    build, state, found = builders["qwen3_tts"].talker2code2wav_async_chunk, manager(config), []
    if override == "no state":
        del state.request_payload
    one = request(external_req_id="r", is_finished=lambda: False, additional_information=None)
    if isinstance(override, int):
        entry = SimpleNamespace(list_data=[override] if override else None)
        one.additional_information = SimpleNamespace(entries={"initial_codec_chunk_frames": entry})
    try:
        for n, frame in enumerate(frames):
            last = end == "with the last" and n == len(frames) - 1
            _qwen3_tts_call(build, state, _qwen3_tts_step(frame, reference if n == 0 else (None, "")), one, last, found)
        if end != "with the last":
            one.is_finished = lambda: True
            _qwen3_tts_call(build, state, _qwen3_tts_step(end, (None, "")), one, False, found)
    except ValueError as error:
        return "refused", str(error).partition(" ")[0]
    return found, getattr(state, "_cached_ic", {}).get("r", 0)


def _qwen3_tts_step(frame, reference):
    if isinstance(frame, str):
        return {"nothing": None, "text": {}, "zeros": {"codes": {"audio": torch.zeros(1, 16)}},
                "no rows": {"codes": {"audio": torch.zeros(1, 0)}}, "3-D": {"codes": {"audio": torch.ones(1, 1, 1)}}}[
            frame
        ]  # fmt: skip
    codes = tensor(frame[0] if frame[0, 1] % 2 else frame)  # by one of its codes: a vector, or a row of them
    return {"codes": {"audio": codes, "ref": _reference(*reference)}}


def _qwen3_tts_call(build, state, given, one, last, found):
    payload = build(state, given, one, last)
    if payload is None:
        return
    state.put_req_chunk["r"] += 1
    meta = payload.meta
    context, size = meta.left_context_size or 0, meta.ref_context_size or 0
    found.append((array(payload.codes.audio), context, size, bool(meta.ref_context_included), bool(meta.finished)))


# --- Qwen3-Omni


def qwen3_omni_thought(builders, embeddings, hidden, prompt_ids, drawn_ids, shape):
    """The rows for the talker, their ids, and how long its prompt becomes."""
    marks = {name: torch.full((1, 2), n) for n, name in enumerate(("embed.tts_bos", "embed.tts_eos", "embed.tts_pad"))}
    marks["embed.tts_eos"] = [marks["embed.tts_eos"]]
    dotted = {"hidden_states.layer_0": tensor(embeddings), "hidden_states.layer_24": tensor(hidden), **marks}
    if shape == "hidden":
        dotted["hidden"] = dotted.pop("hidden_states.layer_0")
    elif shape == "no marks":
        dotted = {name: part for name, part in dotted.items() if name not in marks}
    given = {"none": None, "empty": {}}.get(shape, dotted)
    entry = SimpleNamespace(list_data=["Ann"]) if shape == "marks" else None
    one = request(
        prompt_token_ids=prompt_ids, output_token_ids=Cached(drawn_ids),
        all_token_ids=None if shape == "no all" else prompt_ids + drawn_ids,
        additional_information=SimpleNamespace(entries={"speaker": entry, "language": entry}),
    )  # fmt: skip
    payload = builders["qwen3_omni"].thinker2talker_full_payload(None, given, one)
    if payload is None:
        return None
    rows = array(payload["embed"]["prefill"]), array(payload["hidden_states"]["output"])
    return *rows, payload["ids"]["all"], payload["ids"]["prompt"], payload["next_stage_prompt_len"]


def qwen3_omni_thoughts(builders, embeddings, hidden, prompt_ids, pieces, end, resumable):
    """The same in pieces of so many rows: the chunks of rows, each with whether it is a prompt's."""
    build, state, found = builders["qwen3_omni"].thinker2talker_async_chunk, manager(), []
    one = request(
        external_req_id="r", prompt_token_ids=Cached(prompt_ids), all_token_ids=Cached(prompt_ids),
        output_token_ids=[1], resumable=resumable, additional_information=None, num_computed_tokens=0,
    )  # fmt: skip
    at = 0
    for n, size in enumerate(pieces):
        layers = {0: tensor(embeddings[at : at + size]), "24": tensor(hidden[at : at + size])}
        given = {"hidden_states": {"layers": layers}, "embed": {} if n % 2 else "none"}
        if size == 0:
            given = {"nothing": None, "text": {}, "layers": {"hidden_states": {"layers": 3}}}[end]
        at += size
        payload = build(state, given, one, n == len(pieces) - 1)
        if payload is not None:
            state.put_req_chunk["r"] += 1
            rows = payload.embed.prefill if payload.embed.prefill is not None else payload.embed.decode
            found.append((array(rows), payload.embed.prefill is not None, bool(payload.meta.finished)))
    return found


def qwen3_omni_codes(builders, codes, drawn_ids, shape):
    codes = codes.tolist() if shape == "as list" else codes[None] if shape == "3-D" else codes
    given = {"none": None, "empty": {}, "list": {"codes": []}}.get(
        shape, keyed({"codes.audio": codes if shape == "as list" else tensor(codes)}, shape)
    )
    one = request(output_token_ids=drawn_ids)
    payload = builders["qwen3_omni"].talker2code2wav_full_payload(None, given, one)
    return None if payload is None else payload["codes"]["audio"]


def qwen3_omni_frames(builders, frames, config, stops, end):
    """The same in windows. ``frames`` is one row for each call, or a word."""
    build, state, found = builders["qwen3_omni"].talker2code2wav_async_chunk, manager(config), []
    one = request(external_req_id="r", sampling_params=SimpleNamespace(**stops))
    words = {
        "nothing": None, "text": {}, "list": {"codes": []}, "no rows": {"codes": {"audio": torch.zeros(0, 16)}},
        "zeros": {"codes": {"audio": torch.zeros(1, 16)}},
    }  # fmt: skip
    for n, frame in enumerate([*frames, *([] if end == "with the last" else [end])]):
        given = words[frame] if isinstance(frame, str) else {"codes": {"audio": tensor(frame)}}
        last = n == len(frames) - (end == "with the last")
        payload = build(state, given, one, last)
        if payload is not None:
            state.put_req_chunk["r"] += 1
            meta = payload.meta
            found.append((array(payload.codes.audio), meta.left_context_size, bool(meta.finished)))
    return found


# --- the process


def unreached(cover, builders):
    """What was not reached of the builders: lines, and branches as pairs of lines, by function."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report, contextlib.redirect_stdout(sys.stderr):
        cover.json_report(outfile=report.name, show_contexts=False)
        files = json.loads(Path(report.name).read_text())["files"]
    found = {}
    for name, module in builders.items():
        (file,) = (one for path, one in files.items() if Path(path).name == f"{name}.py")
        source = Path(module.__file__).read_text()
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name in BUILDERS[name]:
                span = range(node.lineno, node.end_lineno + 1)
                missed = {(one, one) for one in file["missing_lines"] if one in span}
                missed |= {(a, b) for a, b in file["missing_branches"] if a in span and (a, a) not in missed}
                found[f"{name}.{node.name}"] = [
                    f"{a}: {lines[a - 1].strip()}" + f" -> {b}" * (a != b) for a, b in sorted(missed)
                ]
    return found


def main():
    folder = Path(sys.argv[1])
    sys.path.append(str(folder))
    import coverage

    cases = pickle.load(sys.stdin.buffer)
    cover = coverage.Coverage(branch=True, data_file=None, include=[f"{folder}/{PROCESSORS.replace('.', '/')}/*"])
    cover.start()
    builders = load(folder)
    results = [globals()[name](builders, *arguments) for name, arguments in cases]
    cover.stop()
    sys.stdout.buffer.write(pickle.dumps((results, unreached(cover, builders))))


if __name__ == "__main__":
    main()
