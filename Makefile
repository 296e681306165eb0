# Each target works alone on a machine that has Python (>= 3.10, with venv), a C++ compiler and make: it creates .venv,
# installs what it needs there (CMake and Ninja too), builds the core and runs. Stamp files make a second run fast; the
# core is rebuilt when kernels/, CMakeLists.txt or pyproject.toml change.
#
#   make demo PYTHON=python3.12                                          another interpreter
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu           torch without CUDA, on Linux
#   make test PYTEST_ARGS="tests/unit -k row"                            some of the tests
#   make bench BENCH_ARGS="sampling --help"                              the options of a measurement
#   make cuda-races RACES=tests/races                                   what CI runs of it
#   make gpu-test GPU_PYTHON=python3                                     a Python that has all that is needed, not .venv
#   make gpu-test SPSAMPLE_DATA=../graphs                                also on the real graphs in that folder
#
# PYTHON and TORCH_INDEX take effect when .venv is created: run `make clean` before changing them.

PYTHON         ?= python3
VENV           ?= .venv
TORCH_INDEX    ?=
PYTEST_WORKERS ?= $(shell n=$$(nproc 2> /dev/null || echo 2); echo $$((n > 8 ? 8 : n)))
PYTEST_ARGS    ?=
# A worker that has done its tests takes some from another: slow ones are in a few files.
PYTEST_SPREAD  := -n $(PYTEST_WORKERS) --dist worksteal
GPU_PYTHON     ?=
RACES          ?= tests/races $(patsubst %,tests/conformance/test_cuda_%.py,bulks equality extraction layerwise spgemm views weighted)
FUZZ_ARGS      ?=
GPU_BENCH_ARGS ?=
BENCH_ARGS     ?= all --quick

BIN   := $(VENV)/bin
PY    := $(BIN)/python
PIP   := $(PY) -m pip --disable-pip-version-check
STAMP := $(VENV)/stamps
CORE  := $(shell find kernels -type f) CMakeLists.txt pyproject.toml
# Editable: Python sources are read where they lie. The build folder is kept, so that only what changed is compiled.
EDITABLE := $(PIP) install --quiet -c constraints.txt --no-build-isolation --config-settings=build-dir=build/dev -e

# Compiled by CMake with the compiler of CXX, where the user set one.
ifneq ($(origin CXX),default)
export CXX
endif
# Waiting OpenMP threads must not spin where tests share cores.
export OMP_WAIT_POLICY ?= passive
# mkdocs-material's notice about its successor.
export NO_MKDOCS_2_WARNING ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint fuzz bench docs docs-serve sanitize package build clean cuda-check cuda-races gpu-test gpu-sanitize gpu-bench

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)/demo  ## train a GNN on a real graph (scikit-learn's digits) cut into 4 block rows, on 4 ranks of this machine
	$(BIN)/spsample launch -n 4 --backend gloo train digits
	@printf '\n%s\n' 'To go on:'
	@printf '  %s\n' '. $(BIN)/activate' \
	  'spsample train digits --out runs/digits  # keeps model, metrics and figures in that folder' \
	  'spsample convert edges.csv my-graph      # a graph of your own: see docs/convert.md'

test: $(STAMP)/dev  ## all tests and the doctests, but for those of cuda-check
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PY) -m pytest $(PYTEST_SPREAD) --ignore=tests/cuda/test_compiles.py $(PYTEST_ARGS)

lint: $(STAMP)/dev  ## ruff, mypy --strict, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: $(STAMP)/dev  ## junk and nearly valid arguments for everything that is public, for a minute, the same ones every time
	OMP_NUM_THREADS=2 $(PY) tests/fuzz/fuzz_entry_points.py --minutes 1 $(FUZZ_ARGS)

bench: $(STAMP)/dev  ## every measurement on small graphs, and one page, into results/ (five minutes on two cores)
	$(BIN)/spsample bench $(BENCH_ARGS)

docs: $(STAMP)/docs  ## the documentation site, into site/
	$(BIN)/mkdocs build --strict

docs-serve: $(STAMP)/docs  ## the documentation site, live on http://127.0.0.1:8000
	$(BIN)/mkdocs serve

sanitize: $(STAMP)/dev  ## the tests of the compiled core under AddressSanitizer and UBSan
	PYTEST_WORKERS=$(PYTEST_WORKERS) .ci/sanitize $(VENV)

package: $(STAMP)/venv  ## an isolated wheel, installed and imported in a fresh environment without torch
	.ci/package $(VENV)

cuda-check: $(STAMP)/cuda-check  ## the CUDA sources compile for sm_80 and sm_90 without spills, by NVRTC and nvcc; no GPU needed
	$(PY) -m pytest $(PYTEST_SPREAD) tests/cuda/test_compiles.py
	$(PY) tests/cuda/registers.py --arch sm_90 --compiler nvrtc

cuda-races: $(STAMP)/dev  ## ThreadSanitizer over the CUDA sources: races between the threads of a kernel; no GPU needed
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-sanitize} $(PY) tests/cuda_emulator/races.py -m pytest $(PYTEST_SPREAD) $(RACES) $(PYTEST_ARGS)

# On a machine with a GPU. With GPU_PYTHON nothing is installed: that Python has CuPy, and spsample's core built in place.
GPU := $(if $(GPU_PYTHON),$(GPU_PYTHON),$(PY))
GPU_NEEDS := $(if $(GPU_PYTHON),,$(STAMP)/gpu)
# Calls of CUDA that fail and are meant to (CuPy and torch ask what there is) are not reported.
SANITIZER := compute-sanitizer --report-api-errors no --error-exitcode 1 --target-processes application-only
# Make hands SPSAMPLE_DATA on, from the environment or from its command line. A slow test is run by its name:
# make gpu-test GPU_MARK=gpu PYTEST_ARGS="-k full_size"
GPU_MARK  ?= gpu and not slow

gpu-test: $(GPU_NEEDS)  ## the tests that need a GPU, without the slow ones: within ten minutes
	$(GPU) -m pytest -m "$(GPU_MARK)" tests/cuda $(PYTEST_ARGS)

gpu-sanitize: $(GPU_NEEDS)  ## compute-sanitizer's memcheck and racecheck over a small bulk of every sampler
	$(SANITIZER) --tool memcheck $(GPU) tests/cuda/small_bulk.py
	$(SANITIZER) --tool racecheck $(GPU) tests/cuda/small_bulk.py

gpu-bench: $(GPU_NEEDS)  ## every measurement on the GPU, into results/ (docs/gpu.md)
	for case in gpu gpu-features gpu-epoch; do \
	  PYTHONPATH=$(CURDIR):$$PYTHONPATH $(GPU) -m spsample.cli.main bench $$case --graph-cache build/graphs $(GPU_BENCH_ARGS) || exit 1; \
	done

build: $(STAMP)/core  ## the compiled core, installed in .venv (editable)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------------------- stamps

$(STAMP)/venv: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "spsample needs Python 3.10 or later")'
	@echo '=== making $(VENV), with what compiles the core: less than a minute'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet -c constraints.txt scikit-build-core nanobind numpy cmake ninja
	@mkdir -p $(STAMP) && touch $@

# First of all that depends on it: else another package's wide range could bring another torch.
$(STAMP)/torch: $(STAMP)/venv
	@echo '=== installing torch: some minutes, by the network; $(if $(TORCH_INDEX),from $(TORCH_INDEX) too,of several GB on Linux without TORCH_INDEX)'
	$(PIP) install --quiet -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	@touch $@

$(STAMP)/core: $(STAMP)/venv $(CORE)
	@echo '=== compiling the core: about two minutes, the first time'
	$(EDITABLE) .
	@touch $@

# The core is order-only: where it alone was rebuilt, there are no packages to install anew.
$(STAMP)/demo: $(STAMP)/torch pyproject.toml | $(STAMP)/core
	@echo '=== installing packages of the demo: about a minute'
	$(EDITABLE) ".[pyg,data,plot,convert]"
	@touch $@

$(STAMP)/dev: $(STAMP)/torch pyproject.toml | $(STAMP)/core
	@echo '=== installing what tests need: some minutes'
	$(EDITABLE) ".[dev]"
	@touch $@

$(STAMP)/cuda-check: $(STAMP)/dev
	$(EDITABLE) ".[cuda-check]"
	@touch $@

$(STAMP)/gpu: $(STAMP)/dev
	$(EDITABLE) ".[gpu]"
	@touch $@

$(STAMP)/docs: $(STAMP)/venv pyproject.toml | $(STAMP)/core
	$(EDITABLE) ".[docs]"
	@touch $@
