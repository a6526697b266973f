# `make demo` and `make test` are all a newcomer needs; both set up .venv first.
PYTHON ?= python3
PY := .venv/bin/python
# Set to `cpu` on Linux without a GPU to spare yourself the CUDA wheels: make setup TORCH_BACKEND=cpu
TORCH_BACKEND ?=
# pip may know of local wheels that uv does not; hand them on (spaces become commas, empty is fine).
FIND_LINKS = $(shell echo "$${PIP_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null)}" | tr -s ' \n' ',' | sed 's/,$$//')

.PHONY: setup demo test test-slow test-slurm test-ray smoke-slurm smoke-ray lint format docs clean bench-interventions reproduction

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

# A real Slurm on this machine, which ends with the tests: apt-get install slurm-wlm munge, and be root. What ran is
# written down in benchmarks/results.
test-slurm: setup
	OMP_NUM_THREADS=1 $(PY) -m tests.cluster.record slurm

smoke-slurm: setup
	OMP_NUM_THREADS=1 .venv/bin/pytest -m 'slurm and smoke' tests/cluster

# A real Ray cluster of three nodes on this machine.
.venv/.ray: .venv/.ok
	UV_FIND_LINKS="$(FIND_LINKS)" .venv/bin/uv pip install --quiet --python $(PY) \
	  $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND)) -e '.[dev,ray]'
	touch $@

test-ray: .venv/.ray
	OMP_NUM_THREADS=1 $(PY) -m tests.cluster.record ray

smoke-ray: .venv/.ray
	OMP_NUM_THREADS=1 .venv/bin/pytest -m 'ray and smoke' tests/cluster

# pyvene and nnsight bring much that nothing else needs, so they live in an environment of their own.
.venv-interp/.ok: pyproject.toml
	$(PYTHON) -m venv .venv-interp
	.venv-interp/bin/python -m pip install --quiet --disable-pip-version-check uv
	UV_FIND_LINKS="$(FIND_LINKS)" .venv-interp/bin/uv pip install --quiet --compile-bytecode \
	  --python .venv-interp/bin/python $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND)) -e '.[dev,interp]'
	touch $@

bench-interventions: .venv-interp/.ok
	OMP_NUM_THREADS=1 .venv-interp/bin/pytest -q tests/interventions/test_peers.py tests/interventions/test_adapt_transformers.py
	OMP_NUM_THREADS=1 .venv-interp/bin/python -m benchmarks.interventions

# Everything that is worked out from what is kept in reproduction/: drawings, the page, the tables of the docs.
reproduction: setup
	.venv/bin/mixerscope figure all reproduction
	.venv/bin/mixerscope reproduce page
	$(PY) -m benchmarks.reproduction --write
	$(PY) -m benchmarks.state_study --write

# The site of this version, in site/VERSION; strict: a link that leads nowhere ends it.
.venv/.docs: .venv/.ok
	UV_FIND_LINKS="$(FIND_LINKS)" .venv/bin/uv pip install --quiet --python $(PY) -e '.[docs]'
	touch $@

docs: .venv/.docs
	$(PY) -m docsite

bench-%: setup
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.$(subst -,_,$*)

clean:
	rm -rf .venv .venv-interp dist build site .pytest_cache .ruff_cache
