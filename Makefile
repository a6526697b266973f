# `make demo` and `make test` are all a newcomer needs; both set up .venv first.
PYTHON ?= python3
PY := .venv/bin/python
# Set to `cpu` on Linux without a GPU to spare yourself the CUDA wheels: make setup TORCH_BACKEND=cpu
TORCH_BACKEND ?=
# pip may know of local wheels that uv does not; hand them on (spaces become commas, empty is fine).
FIND_LINKS = $(shell echo "$${PIP_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null)}" | tr -s ' \n' ',' | sed 's/,$$//')

.PHONY: setup demo test test-slow lint format clean

setup: .venv/.ok

.venv/.ok: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check uv
	UV_FIND_LINKS="$(FIND_LINKS)" .venv/bin/uv pip install --quiet --compile-bytecode --python $(PY) \
	  $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND)) -e '.[dev]'
	touch $@

demo: setup
	.venv/bin/mixerscope demo

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright

format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

# One torch thread per worker: two threads on two busy cores make tiny models many times slower.
test: lint
	OMP_NUM_THREADS=1 .venv/bin/pytest -n 2

test-slow: setup
	OMP_NUM_THREADS=1 .venv/bin/pytest -m slow

bench-%: setup
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.$(subst -,_,$*)

clean:
	rm -rf .venv dist build .pytest_cache .ruff_cache
