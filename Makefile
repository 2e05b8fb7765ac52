# `make demo` and `make test` do all set-up themselves; nothing else needs to be called first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  := .demo/model
# The demo's fine-tuned adapter, merged into the base when the model directory is made; refused by digest if not as committed.
ADAPTER := tools/demo_model/adapter
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check lint types unit smoke kernels kernels-gpu bench clean

help:
	@echo "make demo         a 2x2 factorial with A/A on a real vLLM (CPU), and its HTML report"
	@echo "make test         set-up, then lint, types and every test this machine can run"
	@echo "make check        lint, types and the quick tests; no server"
	@echo "make smoke        five cases at C1 and C4 against the loopback server, to HTML"
	@echo "make kernels      compile every kernel for sm_70 and sm_90 and audit the binaries"
	@echo "make kernels-gpu  oracle, stress and bench on an NVIDIA GPU"
	@echo "make bench        every benchmark; tables go to docs/"

# Each stamp is newer than what it was made from; install.py and make_model.py are idempotent themselves.
$(VENV)/.demo: $(wildcard requirements/*.lock) requirements/install.py pyproject.toml
	$(PYTHON) requirements/install.py --venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.demo $(wildcard requirements/*.lock)
	$(PYTHON) requirements/install.py --venv $(VENV) --dev
	@touch $@

.PHONY: model
model: $(VENV)/.demo
	$(BIN)/python -m tools.demo_model.make_model --out $(MODEL) --cache .demo/cache --adapter $(ADAPTER)

demo: START := $(shell date +%s)
demo: $(VENV)/.demo model
	$(BIN)/python -m tools.demo --model $(MODEL) --started $(START)

test: $(VENV)/.installed model lint types
	$(BIN)/evalharness data fetch bfcl
	EVALHARNESS_DEMO_MODEL=$(abspath $(MODEL)) $(BIN)/python -m pytest --durations=25

check: $(VENV)/.installed lint types unit

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

unit: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not vllm and not browser and not slow and not gpu"

smoke: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not vllm" tests/e2e

kernels: $(VENV)/.installed
	$(BIN)/python -m kernels_sm70.audit --check

kernels-gpu:
	python3 -m kernels_sm70.gpu_suite --out docs/results/kernels

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run_all

clean:
	rm -rf $(VENV) .demo build
