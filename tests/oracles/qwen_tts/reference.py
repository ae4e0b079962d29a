"""What the vendor's package says of a checkpoint: codes and sound of the cases that are asked for.

    python reference.py CHECKPOINT CASES.json OUT.npz

A case is the arguments of one of the package's three ways to generate, and its name. Everything is greedy and float32.
Runs in an environment of its own; see ``environments.py``.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).with_name("stubs")))
warnings.simplefilter("ignore")

from qwen_tts import Qwen3TTSModel  # noqa: E402

WAYS = {"base": "voice_clone"}
GREEDY = {"do_sample": False, "subtalker_dosample": False}


def main(checkpoint: str, cases: str, out: str) -> None:
    torch.set_num_threads(1)
    model = Qwen3TTSModel.from_pretrained(checkpoint, dtype=torch.float32)
    kind = model.model.tts_model_type
    found: dict[str, np.ndarray] = {}
    for case in json.loads(Path(cases).read_text()):
        name, frames = case.pop("name"), case.pop("frames")
        if reference := case.pop("reference", None):
            wave, rate_hz = soundfile.read(reference, dtype="float32")
            prompt = model.create_voice_clone_prompt(
                (wave, rate_hz), case.pop("ref_text", None), case.pop("x_vector_only_mode", False)
            )
            found[f"{name}.speaker"] = prompt[0].ref_spk_embedding.numpy()
            if prompt[0].ref_code is not None:
                found[f"{name}.reference"] = prompt[0].ref_code.numpy()
            case["voice_clone_prompt"] = prompt
        codes: list[torch.Tensor] = []
        decode = model.model.speech_tokenizer.decode

        def noting(encoded, codes=codes, decode=decode):
            codes.append(encoded[0]["audio_codes"])
            return decode(encoded)

        model.model.speech_tokenizer.decode = noting
        waves, _ = getattr(model, f"generate_{WAYS.get(kind, kind)}")(**case, **GREEDY, max_new_tokens=frames + 1)
        model.model.speech_tokenizer.decode = decode
        found[f"{name}.codes"], found[f"{name}.wave"] = codes[0].numpy(), waves[0]
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
