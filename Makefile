# Two commands do everything on a fresh machine: `make serve` and `make test`. `make help` lists the rest.
# Setting up needs Python 3.11 to 3.14 with venv, and a network once; no root, compiler, Node or ffmpeg.

VENV := .venv
BIN := $(VENV)/bin
GPU_NEEDS := torch, transformers, triton, msgspec, numpy, pytest, pytest_asyncio, xdist, pytest_timeout, hypothesis, psutil, rich
# Without one, `make serve` serves configs/starter.yaml, and everything else uses the built-in model.
CONFIG ?=
BUILT_IN := configs/nano.yaml
PORT ?= 8000
HOST ?= 127.0.0.1
HTTPS ?=
# What a configuration needs beyond the base it says itself, in a line "# extra: NAME".
EXTRA ?= $(if $(CONFIG)$(WEIGHTS),$(or $(shell sed -n 's/^\# extra: //p' "$(CONFIG)" 2>/dev/null),base),starter)
SETUP := pyproject.toml constraints.txt scripts/setup.sh

.PHONY: help serve demo test check bench doctor docs format web npm wheel slow chaos soak gpu kernels conformance media ray attacks transitions real timings constraints release vllm containers clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

serve: $(VENV)/$(EXTRA).stamp  ## install and fetch models if needed, and serve (PORT=, HOST=, HTTPS=auto, CONFIG=, WEIGHTS=; EXTRA=hf: Hugging Face's)
	@$(if $(CONFIG)$(WEIGHTS),,$(BIN)/parley pull --config starter || true)
	@exec $(BIN)/parley serve $(CONFIG) --host $(HOST) --port $(PORT) $(if $(HTTPS),--https "$(HTTPS)") $(if $(WEIGHTS),--weights "$(WEIGHTS)")

demo: $(VENV)/demo.stamp  ## the same with a Gradio page at /gradio beside the page
	@exec $(BIN)/python -P -m parley_voice.web.gradio_demo $(or $(CONFIG),$(BUILT_IN)) --host $(HOST) --port $(PORT)

test: $(VENV)/dev.stamp  ## every test that a laptop can run, and a table of what ran, what took longest and what was missing
	@$(BIN)/python -m scripts.suites

check: $(VENV)/dev.stamp  ## run ruff, pyright and import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

bench: $(VENV)/base.stamp  ## measure this machine: first audio, real-time factor, hand-over, underruns
	@$(BIN)/parley bench --config $(or $(CONFIG),$(BUILT_IN))

doctor: $(VENV)/base.stamp  ## what on this machine could keep Parley from working
	@$(BIN)/parley doctor --config $(or $(CONFIG),$(BUILT_IN)) --port $(PORT)

docs: $(VENV)/docs.stamp  ## build the documentation as a site, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Read it at http://127.0.0.1:8008: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8008"
	@echo "(build/site/index.html opens as a file, too; only the search needs a server.)"

format: $(VENV)/dev.stamp  ## put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

web:  ## rebuild the page from web/src (needs Node; its output is committed)
	cd web && npm ci --no-audit --no-fund && npm run build

npm:  ## pack the page's library as an npm package, out/parley-voice-VERSION.tgz (needs Node)
	cd web && npm ci --no-audit --no-fund && node pack.mjs

slow: $(VENV)/dev.stamp  ## the tests that take long: the models beside their references, real processes, the page in a browser
	@$(BIN)/python -m scripts.suites $@

chaos media ray attacks: $(VENV)/dev.stamp  ## the heavy suites, one at a time
	@$(BIN)/python -m scripts.suites $@

real: $(VENV)/dev.stamp  ## real models: their weights are fetched once (400 MB); without a network the tests are skipped
	@$(BIN)/python -m tests.real.weights || true
	@$(BIN)/python -m scripts.suites $@

timings: $(VENV)/dev.stamp  ## the tests that hold times to a bar; they want an idle machine of two cores
	@$(BIN)/python -m scripts.suites bench

# A machine with a GPU may have all packages and no network: then nothing is set up.
gpu:  ## the tests that want a GPU; with the packages of python3 where it has them all
	@if python3 -c "import $(GPU_NEEDS)" 2>/dev/null; then python3 -m scripts.suites $@; \
	else $(MAKE) --no-print-directory $(VENV)/dev.stamp && $(BIN)/python -m scripts.suites $@; fi

kernels: $(VENV)/dev.stamp  ## Triton's kernels, interpreted on this CPU and compiled ahead for GPUs (Linux; fetches Triton once)
	@$(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/python -m pip install --quiet "triton>=3.7,<4"
	@$(BIN)/python -m scripts.suites $@

soak: $(VENV)/dev.stamp  ## users at random for two minutes; MINUTES=60 starts the long one in the background (FOLDER=, USERS=, NICENESS=)
	@$(BIN)/python -m $(if $(MINUTES),tests.soak start $(FOLDER) --minutes $(MINUTES) $(if $(USERS),--users $(USERS)) $(if $(NICENESS),--niceness $(NICENESS)),scripts.suites soak)

conformance: $(VENV)/dev.stamp  ## unmodified clients, each in an environment that is downloaded once (CLIENTS= names some)
	@$(BIN)/python tests/conformance/environments.py $(CLIENTS)
	@$(BIN)/python -m scripts.suites $@ -- $(CLIENTS)

transitions: $(VENV)/dev.stamp  ## payload rules against the builders of vllm-omni 0.22.0, which are downloaded once
	@$(BIN)/python tests/conformance/environments.py vllm_omni
	@$(BIN)/python -m scripts.suites $@

wheel: $(VENV)/dev.stamp  ## try the package on each Python that is here, among packages of the same names (needs a network)
	@$(BIN)/python -m scripts.wheel $(PYTHONS)

release: $(VENV)/dev.stamp  ## packages, their SBOM and licences, in out/release (TAG= checks that all belong together; needs a network)
	@$(BIN)/python -m scripts.release $(if $(TAG),--tag "$(TAG)")

constraints: $(VENV)/dev.stamp  ## write constraints.txt anew from what is installed
	@$(BIN)/python scripts/pin.py

containers: $(VENV)/dev.stamp  ## build the container image, deploy it, and talk to it through its proxy and over TURN (root; buildah and podman)
	@$(BIN)/python -m scripts.containers

vllm: .vllm/vllm.stamp  ## an environment of vLLM's own, for a thinker with `use: llm.vllm` (for this machine's GPU, else its processor)

.vllm/vllm.stamp: scripts/vllm.sh scripts/vllm.txt pyproject.toml
	@sh scripts/vllm.sh .vllm

clean:  ## remove everything that was installed or built here
	rm -rf $(VENV) .vllm build out *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache web/node_modules
	find app engine web tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The starter's libraries have no package for some machines; the built-in model serves there.
$(VENV)/starter.stamp: $(SETUP)
	@sh scripts/setup.sh $(VENV) local || sh scripts/setup.sh $(VENV) base
	@touch $@

# A stamp says that what it stands for is installed: a second `make serve` runs no pip and touches no network.
$(VENV)/%.stamp: $(SETUP)
	@sh scripts/setup.sh $(VENV) $*
