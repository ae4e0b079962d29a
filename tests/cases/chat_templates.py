"""Chat templates of published models. `python -m tests.cases.chat_templates` downloads them once.

Two packages include them: TRL has copies of the models' own files, and Axolotl has those of further families. SmolLM2's
file is in no package; its format is ChatML, which is here, and the suite `real` runs the model itself.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.real.weights import CACHE

FOLDER = CACHE / "chat_templates"
WHEELS = {
    "trl-1.16.0-py3-none-any.whl": "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
    "axolotl-0.19.0-py3-none-any.whl": "f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc",
}
"""File name and SHA-256 of each package. Both are Apache-2.0, and have 2.5 MB in all."""
TEMPLATES = {
    "trl/chat_templates": (
        "gemma3", "gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5", "glm4moe", "gptoss", "lfm2", "lfm2_v2",
        "llama3", "llama3_1", "llama3_2", "nemotron_3_nano", "phi3", "phi3_5", "qwen2_5", "qwen2_5_vl", "qwen3",
        "qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8", "qwen3_instruct_2507", "qwen3_vl", "smolvlm",
    ),
    "axolotl/utils/chat_templates/templates": (
        "chatml", "exaone4", "falcon_h1", "gemma3n", "jamba", "llama3_2_vision", "llama4", "mistral_v1",
        "mistral_v2v3", "mistral_v3_tekken", "mistral_v7_tekken", "phi_4", "pixtral",
    ),
}  # fmt: skip
"""Names of the templates in each folder of the packages."""


def missing() -> str:
    """Return why the templates cannot be read, or "" if they can."""
    for name, digest in WHEELS.items():
        path = FOLDER / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return "no chat templates: `python -m tests.cases.chat_templates` downloads them"
    return ""


def template(name: str) -> str:
    """Return the text of a template."""
    folder = next(folder for folder, names in TEMPLATES.items() if name in names)
    wheel = next(wheel for wheel in WHEELS if wheel.startswith(folder.split("/")[0]))
    return zipfile.ZipFile(FOLDER / wheel).read(f"{folder}/{name}.jinja").decode()


def main() -> int:
    """Download the packages that are missing. Return 1 if one is not available."""
    if not missing():
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--retries", "1"]
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.txt")
        pins = ((*name.split("-")[:2], digest) for name, digest in WHEELS.items())
        wanted.write_text("".join(f"{name}=={version} --hash=sha256:{digest}\n" for name, version, digest in pins))
        subprocess.run([*pip, "--only-binary", ":all:", "-d", FOLDER, "-r", wanted], stderr=subprocess.DEVNULL)
    if missing():
        print("The chat templates are not available without a network, so their tests are skipped.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
