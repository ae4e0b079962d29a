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

.PHONY: help serve doctor bench demo vllm npm clean test check format slow docs web chaos media ray attacks real timings gpu kernels soak conformance transitions wheel release constraints containers

help:
	@awk -F ':.*## ' '/^## / { printf "\n%s\n", substr($$0, 4) } /^[a-z ]+:.*## / { printf "  %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Use

serve: $(VENV)/$(EXTRA).stamp  ## install, download the models, and serve (PORT=, HOST=, HTTPS=auto, CONFIG=, WEIGHTS=, EXTRA=hf)
	@$(if $(CONFIG)$(WEIGHTS),,$(BIN)/parley pull --config starter || true)
	@exec $(BIN)/parley serve $(CONFIG) --host $(HOST) --port $(PORT) $(if $(HTTPS),--https "$(HTTPS)") $(if $(WEIGHTS),--weights "$(WEIGHTS)")

doctor: $(VENV)/base.stamp  ## find what could keep Parley from working on this machine
	@$(BIN)/parley doctor --config $(or $(CONFIG),$(BUILT_IN)) --port $(PORT)

bench: $(VENV)/base.stamp  ## measure this machine: first audio, real-time factor, underruns
	@$(BIN)/parley bench --config $(or $(CONFIG),$(BUILT_IN))

demo: $(VENV)/demo.stamp  ## serve with a Gradio page at /gradio/ (downloads up to 190 MB once)
	@exec $(BIN)/python -P -m parley_voice.web.gradio_demo $(or $(CONFIG),$(BUILT_IN)) --host $(HOST) --port $(PORT)

vllm: .vllm/vllm.stamp  ## install vLLM into .vllm, for `use: llm.vllm` (10 GB for a GPU, else 2.6 GB)

.vllm/vllm.stamp: scripts/vllm.sh scripts/vllm.txt pyproject.toml
	@sh scripts/vllm.sh .vllm

npm:  ## pack the page's library as out/parley-voice-VERSION.tgz (needs Node)
	cd web && npm ci --no-audit --no-fund && node pack.mjs

clean:  ## remove everything that was installed or built here
	rm -rf $(VENV) .vllm build out *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache web/node_modules
	find app engine web tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

## Develop

test: $(VENV)/dev.stamp  ## run the tests for a laptop, and list what was skipped
	@$(BIN)/python -m scripts.suites

check: $(VENV)/dev.stamp  ## run ruff, pyright and import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: $(VENV)/dev.stamp  ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

slow: $(VENV)/dev.stamp  ## run the long tests: model references, real processes, the page in a browser
	@$(BIN)/python -m tests.cases.chat_templates || true
	@$(BIN)/python -m scripts.suites $@

docs: $(VENV)/docs.stamp  ## build the documentation into build/site (downloads up to 162 MB once)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Read it at http://127.0.0.1:8008: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8008"
	@echo "(build/site/index.html opens as a file, too; only the search needs a server.)"

web:  ## rebuild the page from web/src (needs Node; commit the result)
	cd web && npm ci --no-audit --no-fund && npm run build

## Maintain

chaos media ray attacks: $(VENV)/dev.stamp  ## run one heavy suite
	@$(BIN)/python -m scripts.suites $@

real: $(VENV)/dev.stamp  ## run tests with real models (downloads 400 MB once; skipped without a network)
	@$(BIN)/python -m tests.real.weights || true
	@$(BIN)/python -m scripts.suites $@

timings: $(VENV)/dev.stamp  ## run the tests with time limits (needs an idle machine)
	@$(BIN)/python -m scripts.suites bench

# A machine with a GPU may have all packages and no network: then nothing is set up.
gpu:  ## run the tests that need a GPU
	@if python3 -c "import $(GPU_NEEDS)" 2>/dev/null; then python3 -m scripts.suites $@; \
	else $(MAKE) --no-print-directory $(VENV)/dev.stamp && $(BIN)/python -m scripts.suites $@; fi

kernels: $(VENV)/dev.stamp  ## test the Triton kernels on this CPU (Linux; downloads Triton once)
	@$(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/python -m pip install --quiet "triton>=3.7,<4"
	@$(BIN)/python -m scripts.suites $@

soak: $(VENV)/dev.stamp  ## run random users for two minutes (MINUTES=60 in the background; FOLDER=, USERS=, NICENESS=)
	@$(BIN)/python -m $(if $(MINUTES),tests.soak start $(FOLDER) --minutes $(MINUTES) $(if $(USERS),--users $(USERS)) $(if $(NICENESS),--niceness $(NICENESS)),scripts.suites soak)

conformance: $(VENV)/dev.stamp  ## test unmodified clients (downloads 2.1 GB once; CLIENTS= selects some)
	@$(BIN)/python tests/conformance/environments.py $(CLIENTS)
	@$(BIN)/python -m scripts.suites $@ -- $(CLIENTS)

transitions: $(VENV)/dev.stamp  ## test payload rules against vllm-omni 0.22.0 (downloads it once)
	@$(BIN)/python tests/conformance/environments.py vllm_omni
	@$(BIN)/python -m scripts.suites $@

wheel: $(VENV)/dev.stamp  ## test the package on each installed Python (needs a network; PYTHONS=)
	@$(BIN)/python -m scripts.wheel $(PYTHONS)

release: $(VENV)/dev.stamp  ## build packages, SBOM and licences in out/release (needs a network; TAG= checks the version)
	@$(BIN)/python -m scripts.release $(if $(TAG),--tag "$(TAG)")

constraints: $(VENV)/dev.stamp  ## write constraints.txt from what is installed
	@$(BIN)/python scripts/pin.py

containers: $(VENV)/dev.stamp  ## build and test the container image and its deployment (root, buildah and podman)
	@$(BIN)/python -m scripts.containers

# The starter's libraries have no package for some machines; the built-in model serves there.
$(VENV)/starter.stamp: $(SETUP)
	@sh scripts/setup.sh $(VENV) local || sh scripts/setup.sh $(VENV) base
	@touch $@

# A stamp says that what it stands for is installed: a second `make serve` runs no pip and touches no network.
$(VENV)/%.stamp: $(SETUP)
	@sh scripts/setup.sh $(VENV) $*
