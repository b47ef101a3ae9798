# Each target does its own set-up in .venv: Python 3.11+ and make are all that a new machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-networks test-ray test-packages test-docs coverage test-fast test-browser test-slow lint types bench bench-compare tightness torture mutants mutants-changed poisoning
.PHONY: lock locked sbom dist docs docs-serve graph clean help

help:
	@echo "make demo          certify an ensemble on the digits dataset, and write a report on it"
	@echo "make test          linters, types and tests"
	@echo "make test-fast     the tests that take seconds, to run after every change"
	@echo "make coverage      the lines that the tests run"
	@echo "make lint          ruff, its formatter and the contracts between packages"
	@echo "make types         mypy"
	@echo "make test-ray      train on a local Ray cluster while its nodes and drivers are killed"
	@echo "make test-networks code that is meant for GPUs, compared with the CPU"
	@echo "make test-packages models of XGBoost, LightGBM, CatBoost and imbalanced-learn are saved and loaded"
	@echo "make test-docs     every code block of README and docs, run as printed"
	@echo "make test-browser  the report in Chromium, on desktop and phone screens"
	@echo "make test-slow     the exhaustive adversary on thousands of additional cases"
	@echo "make bench         speed and memory, as ratios measured in one run"
	@echo "make bench-compare the same for this source and that of another commit, BASE=COMMIT"
	@echo "make tightness     how often and by how much the tight bound exceeds the paper's"
	@echo "make torture       try to break runoff: brute force, damaged files, kills, real refits, two processes at once"
	@echo "make mutants       change one expression at a time: do the tests notice? PART=covering for one part"
	@echo "make mutants-changed  the same for lines that differ from BASE=COMMIT, in a few minutes"
	@echo "make poisoning     retrain poisoned ensembles: does a prediction change within its radius?"
	@echo "make graph         modules, imports and repeated code, in numbers"
	@echo "make lock          write requirements.lock: the SHA-256 of every package file of the environment"
	@echo "make locked        build an environment from requirements.lock in build/locked, rejecting any other file"
	@echo "make sbom          write sbom.json, a software bill of materials (CycloneDX)"
	@echo "make docs          build the website in build/site; warnings are errors"
	@echo "make docs-serve    show the website on http://127.0.0.1:8000, rebuilt as pages change"
	@echo "make dist          build the wheel and try it in an empty environment"
	@echo "make clean         remove environments, caches and everything that was built"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Environments of the demo and of the website have only the packages of one list in pyproject.toml, which is far less than
# development needs. The package itself is read from src, so nothing is built.
define requirements
@$(PYTHON) -m venv $(@D)
@$(@D)/bin/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*$(1), sep='\n')" > $(@D)/requirements.txt
$(@D)/bin/pip install --disable-pip-version-check $(2) --constraint constraints.txt --requirement $(@D)/requirements.txt
@touch $@
endef

DEMO := build/demo-venv

$(DEMO)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(DEMO), once: NumPy, numba, SciPy and scikit-learn (0.4 GB). This takes about half a minute."
	$(call requirements,project['dependencies'],--no-compile)

demo: $(DEMO)/.ready
	PYTHONPATH=src $(DEMO)/bin/python -m runoff demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(READY)
	$(BIN)/mypy

# Kernels are compiled first, each once: workers of pytest begin with the same tests, and would both compile them.
COMPILED := build/.kernels-ready

$(COMPILED): $(READY) $(wildcard src/runoff/_kernels/*.py)
	PYTHONPATH=src $(BIN)/python -m tests.compiled
	mkdir -p build && touch $@

# The second run is without compilation, where numpy warns of integers that overflow.
test: lint types $(COMPILED)
	$(BIN)/pytest -n 2 --ignore=tests/test_docs.py $(foreach file,$(NETWORKS),--ignore=$(file))
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 -q --hypothesis-profile=fast $(UNCOMPILED)

# What runs on GPUs, compared with the CPU: kernels, captured steps and networks trained side by side.
NETWORKS := tests/test_torch_products.py tests/test_torch_kernels.py tests/test_torch_graphs.py \
	tests/test_torch_isolation.py tests/test_torch_augment.py

test-networks: $(READY)
	$(BIN)/pytest -n 2 -q $(NETWORKS)

UNCOMPILED := tests/test_cover.py tests/test_adversary.py tests/test_reference.py

# Compiled kernels are invisible to coverage: the second run shows them.
coverage: $(READY)
	$(BIN)/pytest -n 2 -q --cov --cov-report=
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 -q --cov --cov-append $(UNCOMPILED)

# The inner loop: what certificates, labels and files rest on, with fewer examples of each property.
SLOW_TESTS := test_docs* test_torch* test_runs* test_reproduce* test_report* test_poisoning* test_sklearn* test_package* \
	test_verify* test_datasets* test_isolation* test_cli* test_torture* test_mutants* test_units* test_labels_only* \
	test_encoders* test_collective* test_executors* test_saving* test_first_hour* test_pinned* test_planning* test_results*

test-fast: $(COMPILED)
	$(BIN)/ruff check .
	$(BIN)/pytest -n 2 -q --hypothesis-profile=fast $(foreach name,$(SLOW_TESTS),--ignore-glob='tests/$(name)')

# Every code block of README and docs, run as printed.
test-docs: $(READY)
	$(BIN)/pytest -n 2 -q tests/test_docs.py

# Ray is large, so it is installed by the targets that need it.
$(VENV)/.ray-ready: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev-ray]'
	touch $@

test-ray: $(VENV)/.ray-ready
	$(BIN)/pytest -q --override-ini addopts= tests/cluster

# Boosting libraries are large, too. Each is imported first, so that no test is skipped for lack of one.
PACKAGES := xgboost-cpu==3.2.0 lightgbm==4.7.0 catboost==1.2.10

$(VENV)/.packages-ready: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt $(PACKAGES)
	touch $@

test-packages: $(VENV)/.packages-ready
	$(BIN)/python -c "import catboost, imblearn, lightgbm, xgboost"
	$(BIN)/pytest -q tests/test_saving_packages.py

test-browser: $(READY)
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
		{ echo "test-browser needs Chromium: install it with apt-get install chromium" >&2; exit 1; }
	$(BIN)/pytest -n 2 --override-ini addopts= tests/browser

test-slow: $(READY)
	$(BIN)/pytest -m slow -n 2

bench: $(READY) $(VENV)/.ray-ready
	$(BIN)/python -m benchmarks

# The same benchmarks on the source of another commit: make bench-compare BASE=main
bench-compare: $(READY) $(VENV)/.ray-ready
	$(BIN)/python -m benchmarks --compare $(or $(BASE),HEAD~1)

tightness: $(READY)
	$(BIN)/python -m benchmarks.tightness

# PART=elections or others of its parts; SCALE=0.01 for a quick one; WRITE=docs/trust.md puts the table there.
torture: $(READY)
	$(BIN)/python -m tests.torture $(if $(PART),--part $(PART)) --scale $(or $(SCALE),1) $(if $(WRITE),--write $(WRITE))

poisoning: $(READY)
	$(BIN)/python -m benchmarks.poisoning digits
	$(BIN)/python -m benchmarks.poisoning cancer

mutants: $(READY)
	$(BIN)/python -m tests.mutants $(if $(PART),--part $(PART)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(WRITE),--write)

# For CI: only what changed since BASE, and no more than some minutes of it.
mutants-changed: $(READY)
	$(BIN)/python -m tests.mutants --changed $(or $(BASE),origin/main) --seconds $(or $(SECONDS_A_PART),120)

graph: $(READY)
	@$(BIN)/python scripts/import_graph.py

# The lock is for the Python and the platform that make it; other machines go by constraints.txt.
lock: $(READY)
	$(BIN)/python scripts/lock.py

locked:
	$(PYTHON) -m venv build/locked
	build/locked/bin/pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	build/locked/bin/pip install --quiet --no-deps --no-build-isolation .
	build/locked/bin/pip check

sbom: $(READY)
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet cyclonedx-bom==7.5.0
	build/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --output-file sbom.json $(BIN)/python

# The website is made from pages and docstrings, without importing the package.
DOCS := build/docs-venv

$(DOCS)/.ready: pyproject.toml constraints.txt
	$(call requirements,project['optional-dependencies']['docs'],--quiet)

docs: $(DOCS)/.ready
	$(DOCS)/bin/mkdocs build --strict

docs-serve: $(DOCS)/.ready
	$(DOCS)/bin/mkdocs serve --strict

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m tests.try_wheel dist

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .coverage
