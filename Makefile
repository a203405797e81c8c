# Every target sets up what it needs by itself: a machine with Python >= 3.11, make and pip access is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DOCS_STAMP := $(VENV)/.docs-ready
RIVALS_STAMP := $(VENV)/.rivals-ready
WORKERS ?= 2


.PHONY: demo test test-slow test-browser test-wheel test-minimal test-cpus test-dropin test-migrate test-seeds test-paths test-blocks test-bounds campaign mutants lint docs bench clean test-gpu test-cluster soak test-service

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("eckart needs Python >= 3.11, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,torch,dask,serve,studio,sql]'
	@touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,torch,dask,serve,studio,sql,docs]'
	@touch $(DOCS_STAMP)

# some rivals are built from source and need a compiler; one that cannot be installed is reported as failed, the rest are measured
$(RIVALS_STAMP): $(STAMP) benchmarks/rivals.txt
	-for package in $$(cat benchmarks/rivals.txt); do $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $$package; done
	@touch $(RIVALS_STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --doctest-modules --doctest-glob='*.md' --doctest-glob='*.rst' src tests README.md docs

# what is too long for the suite, and every case of the contracts: about half an hour
test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow tests
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --every-case --doctest-glob='*.rst' tests/engines tests/test_promises.py docs

# clusters of processes whose workers, or whose scheduler, are killed again and again: about ten minutes
test-cluster: $(STAMP)
	$(BIN)/python -m pytest -q -m "cluster or not cluster" tests/cluster

# the studio's page in a real browser (Debian's chromium): each room opened, each action done; about five minutes
test-browser: $(STAMP)
	$(BIN)/python -m pytest -q -m "slow or not slow" tests/browser

# the wheel as a user gets it: in an environment of its own, without the checkout
test-wheel: $(STAMP)
	rm -rf $(VENV)/wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir $(VENV)/wheel/dist
	$(PYTHON) -m venv $(VENV)/wheel/env
	$(VENV)/wheel/env/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(VENV)/wheel/dist/*.whl
	cp tests/smoke.py $(VENV)/wheel/
	cd $(VENV)/wheel && env/bin/python -P smoke.py

# the oldest versions that pyproject.toml allows, in an environment of their own: every verb, and the tests of four models
test-minimal: $(STAMP)
	rm -rf $(VENV)/minimal
	$(PYTHON) -m venv $(VENV)/minimal
	$(VENV)/minimal/bin/python -m pip install --quiet --disable-pip-version-check -c .github/minimal.txt . pytest pytest-timeout hypothesis pandas
	cp tests/smoke.py $(VENV)/minimal/
	cd $(VENV)/minimal && bin/python -P smoke.py
	$(VENV)/minimal/bin/python -m pytest -q tests/test_pca.py tests/test_als.py tests/test_lda.py tests/test_gaussian_mixture.py tests/test_dropin.py

# the specification, promises and contracts as on other processors: about five minutes a setting
test-cpus: $(STAMP)
	$(BIN)/python tests/cpus.py $(CPUS)

# scikit-learn's own tests, run on the classes of the same name
test-dropin: $(STAMP)
	$(BIN)/python tests/dropin.py $(MODULES)

# the rows of docs/migrate.rst against the libraries themselves, in an environment of their own
test-migrate: $(STAMP)
	$(PYTHON) -m venv --system-site-packages $(VENV)/migrate
	$(VENV)/migrate/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . gensim implicit scikit-surprise pandas
	$(VENV)/migrate/bin/python tests/migrate.py

# attacks on files, discs, processes and numbers: make campaign SEED=1 MINUTES=60; what they found is in docs/reliability.rst
SEED ?= 0
MINUTES ?= 10
campaign: $(STAMP)
	cd tests && ../$(BIN)/python -m campaign --seed $(SEED) --minutes $(MINUTES) $(if $(PARTS),--parts $(PARTS))

# do the tests bite? faults in certificates, solvers and loaders, one at a time: make mutants ROOMS=certify
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py --seed $(SEED) --minutes $(MINUTES) $(if $(ROOMS),--rooms $(ROOMS)) $(if $(PICKED),--picked)

# every solver goes the way that was written down (tests/recorded_paths.py): after a change of a solver this shows what it moved
test-paths: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m recorded tests/test_paths.py

# every test that draws numbers on 30 seeds (FIRST=31: on others): make test-seeds TESTS="tests/test_bayes.py tests/test_lda.py"
SEEDS ?= 30
FIRST ?= 1
TESTS ?= tests
test-seeds: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -o timeout=3600 --seeds $(SEEDS) --first-seed $(FIRST) $(TESTS)

# the chapters' tests on matrices that are cut into blocks of 1, 2 and 7 rows
CHAPTERS := tests/test_pca.py tests/test_als.py tests/test_nmf.py tests/test_gaussian_mixture.py tests/test_mixture.py tests/test_lda.py tests/test_plsa.py
test-blocks: $(STAMP)
	for rows in 1 2 7; do $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --block-rows $$rows $(CHAPTERS) || exit 1; done

# kernels compiled anew so that every index is checked: contracts, hostile models, readers, and a fit of every model; about fifteen minutes on one core
BOUNDED := tests/test_bounds.py tests/engines tests/test_parts.py tests/test_hostile_models.py tests/test_matrix_market.py tests/test_read.py \
	tests/test_triples.py tests/test_vector_files.py tests/test_text.py
test-bounds: $(STAMP)
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/bounds $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -k "not torch" $(BOUNDED)

# every contract test and a fit of every model on the GPU of this machine
test-gpu: $(STAMP)
	$(BIN)/python tests/gpu.py

# cases made from the service's OpenAPI file: make test-service CASES=20000; schemathesis lives in an environment of its own
CASES ?= 20000
test-service: $(STAMP)
	$(PYTHON) -m venv $(VENV)/service
	$(VENV)/service/bin/python -m pip install --quiet --disable-pip-version-check 'schemathesis>=4.32,<5'
	$(BIN)/python tests/service_cases.py --cases $(CASES) --schemathesis $(VENV)/service/bin/schemathesis

# the service under load, swaps, killed workers and hostile clients: make soak SECONDS=86400 for a day
SECONDS ?= 3600
soak: $(STAMP)
	$(BIN)/python tests/soak.py --seconds $(SECONDS)

docs: $(DOCS_STAMP)
	rm -rf docs/generated docs/gallery/plot_* docs/learn  # pages of names and scripts that have moved
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: docs/_build/html/index.html"

bench: $(RIVALS_STAMP)
	$(BIN)/python benchmarks/reduce.py
	$(BIN)/python benchmarks/complete.py
	$(BIN)/python benchmarks/nuclear.py
	$(BIN)/python benchmarks/phase.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/mixtures.py
	$(BIN)/python benchmarks/nmf.py
	$(BIN)/python benchmarks/topics.py
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/embed_neighbours.py
	$(BIN)/python benchmarks/networks.py
	$(BIN)/python benchmarks/serve.py

clean:
	rm -rf $(VENV) docs/_build docs/gallery docs/learn docs/generated out
