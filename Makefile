# What one does with this project. `make` alone lists it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
JOBS ?= 2
# Tests on GPUs: as many processes as the GPUs and cores are for.
GPU_JOBS ?= auto
PYTEST_ARGS ?=
KERNELS_ARGS ?=
MODELS_ARGS ?=
PLANNER_ARGS ?=
GPU_ARGS ?=
# A Python with torch for CUDA: the one of .venv has it where pip chose it.
BENCH_PYTHON ?= $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-gpu lint format fuzz bench bench-gpu bench-kernels bench-models bench-planner bench-solver docs docs-transcripts docs-notebooks docs-figures docs-operations docs-parallelisms clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamps are rewritten when the dependencies change; an editable install needs nothing else.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tapestry-demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install --quiet -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.tapestry-dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.tapestry-demo

venv: $(VENV)/.tapestry-dev  ## make .venv with everything development needs

demo: $(VENV)/.tapestry-demo  ## plan, check, run and draw the corner detector: build/corners.{png,plan.json,html}
	@mkdir -p build
	$(BIN)/python examples/corners.py --build build

test: lint  ## every check and every test (about 20 minutes on 2 cores)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

test-gpu: $(VENV)/.tapestry-dev  ## what needs an NVIDIA GPU, or two: kernels, the CuPy device, 1,000 generated programs, faults; build/test-gpu.jsonl
	$(BENCH_PYTHON) -m pytest -p tests.gpus -n $(GPU_JOBS) --dist load --maxschedchunk 1 \
	  tests/kernels/gpu tests/workers/cupy/gpu $(PYTEST_ARGS)

lint: $(VENV)/.tapestry-dev  ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy examples
	$(BIN)/lint-imports

format: $(VENV)/.tapestry-dev  ## format and sort imports
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

fuzz: $(VENV)/.tapestry-dev  ## 50,000 generated programs against the reference, and what else is tried at length
	TAPESTRY_FUZZ=50000 $(BIN)/python -m pytest -n $(JOBS) tests -k "fuzz or input_gradient" $(PYTEST_ARGS)

bench: $(VENV)/.tapestry-dev  ## the figures of the README and the docs
	$(BIN)/python benchmarks/run.py

bench-planner: $(VENV)/.tapestry-dev  ## seconds to plan by layers, meshes and programs (PLANNER_ARGS='--only "forward 8b, * on 8"')
	$(BIN)/python benchmarks/planner.py $(PLANNER_ARGS)

bench-gpu: $(VENV)/.tapestry-dev  ## steps on GPUs beside torch and NCCL by hand (GPU_ARGS="--only llama1")
	$(BENCH_PYTHON) benchmarks/gpu.py build/gpu.json $(GPU_ARGS)
	$(BIN)/python benchmarks/gpu.py build/gpu.json --doc docs/gpu.md

bench-solver: $(VENV)/.tapestry-dev  ## the solvers on the outside problems
	$(BIN)/python benchmarks/solver_assign.py --doc docs/solver.md
	$(BIN)/python benchmarks/solver_pack.py --doc docs/solver.md

bench-kernels: $(VENV)/.tapestry-dev  ## the kernels beside cuDNN and Spio, on a GPU (KERNELS_ARGS="--time-limit 300")
	$(BENCH_PYTHON) benchmarks/kernels.py --doc docs/kernels.md $(KERNELS_ARGS)

bench-models: $(VENV)/.tapestry-dev  ## whole timm models beside cuDNN, on a GPU (MODELS_ARGS="--only regnety_016")
	$(BENCH_PYTHON) benchmarks/models.py --doc docs/models.md $(MODELS_ARGS)

docs: $(VENV)/.tapestry-dev  ## the site of the documentation: build/site/index.html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site

docs-transcripts: $(VENV)/.tapestry-dev  ## run the commands that pages of docs/ show, and write down what they print
	$(BIN)/python -m tests.docs.transcript

docs-notebooks: $(VENV)/.tapestry-dev  ## run the notebooks and keep what they print and draw
	$(BIN)/python -m tests.notebooks.course

docs-figures: $(VENV)/.tapestry-dev  ## redraw the pictures under docs/img
	$(BIN)/python examples/corners.py --build build
	@mkdir -p docs/img
	cp build/corners.png docs/img/corners.png
	$(BIN)/python benchmarks/model_chart.py

docs-operations: $(VENV)/.tapestry-dev  ## write the table of operations, docs/operations.md
	$(BIN)/python -m tests.operations.coverage

docs-parallelisms: $(VENV)/.tapestry-dev  ## write the page of ways of sharding that have names, docs/parallelisms.md
	$(BIN)/python -m tests.planner.search.named_page

clean:  ## remove what the targets above made, .venv excepted
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
