# The commands of this project. `make` alone lists them.
PYTHON ?= python3
PYTEST_ARGS ?= -n 2
TORTURE_ARGS ?= --minutes 5
BENCH_ARGS ?= --size 21000 --size 200000
EVAL_ARGS ?=
LOCK_ARGS ?=
RUN = .venv/bin/python
TEMPLATES = $(shell find templates/django -name '*.html')

.DEFAULT_GOAL := help
.PHONY: help run test test-all torture lint format bench eval lock sbom package

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## install what is missing, start the database, load a sample, serve, and print a link that signs you in (PORT=8000)
	@$(PYTHON) bootstrap.py
	@$(RUN) manage.py up

test: ## install what tests need (a browser too) and run those that guard changes (PYTEST_ARGS="-n 2")
	@$(PYTHON) bootstrap.py dev
	@$(RUN) -m tests.browser.chromium
	$(RUN) -m pytest -m "not release" $(PYTEST_ARGS)

test-all: ## run all tests, with those that guard releases: whole servers, other programs, larger samples
	@$(PYTHON) bootstrap.py dev
	@$(RUN) -m tests.browser.chromium
	API_CASES=50 EXAMPLES=200 CURATION_SEEDS=2 CURATION_VERBS=200 $(RUN) -m pytest $(PYTEST_ARGS)

torture: ## kill and starve a site of its own while everybody writes, and look for what is lost (TORTURE_ARGS="--minutes 5")
	@$(PYTHON) bootstrap.py embeddings
	$(RUN) -m lab.torture campaign $(TORTURE_ARGS)

node_modules/.package-lock.json: package-lock.json
	@npm ci --ignore-scripts --no-audit --no-fund --silent

lint: ## check style, types, layers, migrations and settings
	@$(PYTHON) bootstrap.py dev
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	.venv/bin/djade --check $(TEMPLATES)
	$(RUN) -m mypy
	.venv/bin/lint-imports
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory node_modules/.package-lock.json && npx eslint static/js && npx prettier --check static/js; else echo 'npm is missing: the scripts of the pages are not checked'; fi
	$(RUN) manage.py makemigrations --check --dry-run
	$(RUN) manage.py check

format: ## rewrite the code in the project's style
	@$(PYTHON) bootstrap.py dev
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format
	.venv/bin/djade $(TEMPLATES)
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory node_modules/.package-lock.json && npx prettier --write static/js; fi

lock: ## write the lock files in requirements/ from pyproject.toml (LOCK_ARGS=--upgrade for newer versions)
	@$(PYTHON) bootstrap.py lock
	$(RUN) requirements/lock.py $(LOCK_ARGS)

sbom: ## write the bill of materials of the lock files, as CycloneDX, to dist/
	@$(PYTHON) bootstrap.py release
	@mkdir -p dist
	cat requirements/base.txt requirements/embeddings.txt requirements/torch.txt | .venv/bin/cyclonedx-py requirements - \
	  --pyproject pyproject.toml --output-reproducible --output-format JSON --output-file dist/mnemoscope.cdx.json

package: ## build the wheel and the source distribution in dist/
	@$(PYTHON) bootstrap.py release
	$(RUN) -m build --no-isolation

bench: ## measure imports and searches on generated corpora, beside others (BENCH_ARGS="--size 21000")
	@$(PYTHON) bootstrap.py bench
	$(RUN) -m lab.bench $(BENCH_ARGS)

eval: ## measure how well memories are found, over a collection in the layout of BEIR (DIR=folder EVAL_ARGS="--json FILE")
	@test -n "$(DIR)" || { echo "Say which collection: make eval DIR=path/to/folder (see docs/evaluation.md)" >&2; exit 2; }
	@$(PYTHON) bootstrap.py bench
	$(RUN) -m lab.evaluate "$(DIR)" $(EVAL_ARGS)
