PYTHON ?= python3
BIN := .venv/bin
SCALE ?= 0.1
SCALES ?= 0.01 0.1 1
PYTEST := $(BIN)/pytest --no-loadscope-reorder --numprocesses
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
# uv needs far less CPU time than pip. It does not read the configuration of pip, so pip follows if it fails.
# Both compile modules to bytecode: where PYTHONDONTWRITEBYTECODE is set, each start would compile them again.
install = $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $(1) || $(PIP) --require-hashes -r $(1)

.PHONY: help setup demo test test-full check s3a reliability bench bench-page questions-page screenshots format clean lock

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready  ## Make the environment .venv

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; say which with: make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/bin/uv: requirements-uv.txt | .venv/bin/python
	$(PIP) --require-hashes -r requirements-uv.txt

.venv/ready: requirements.txt pyproject.toml | .venv/bin/uv
	$(call install,requirements.txt)
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src tools
	$(BIN)/kopi warm
	@touch $@

.venv/ready-dev: requirements-dev.txt .venv/ready
	$(call install,requirements-dev.txt)
	@touch $@

demo: .venv/ready  ## Generate data, analyze it, verify the answers
	rm -rf demo
	$(BIN)/kopi generate --out demo/data --scale 0.01
	$(BIN)/kopi analyze demo/data --out demo/answers
	$(BIN)/kopi verify demo/data demo/answers
	@echo "The answers are in demo/answers; the data they are about is in demo/data."

s3a: .venv/ready  ## Fetch the jars with which Spark uses S3, 14 MB from Maven Central, once
	$(BIN)/python -m kopitiam.spark.s3a

test: check  ## All tests, slow matrices sampled
	$(PYTEST) 3 -m "not unit or slow" tests

test-full: check  ## All tests, slow matrices in full
	KOPI_TEST_FULL=1 $(PYTEST) 3 tests

check: .venv/ready-dev  ## Lint, types, import rules, quick unit tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) 2 -m "not slow" tests/unit

reliability: .venv/ready-dev  ## Run faults against the real product, write docs/reliability.md; FAULTS="--only NAME" for some of them
	PYTHONPATH=tests:tests/acceptance:tests/chaos:tests/hosts $(BIN)/python -m tools.reliability $(FAULTS)

bench: .venv/ready-dev  ## Ratios against other engines; SCALE=1 for the full size
	$(BIN)/kopi bench --scale $(SCALE)

bench-page: .venv/ready-dev  ## Measure at SCALES and write docs/benchmarks.md; takes an hour at full size
	$(BIN)/python -m tools.benchmarks.page $(foreach scale,$(SCALES),--scale $(scale)) $(PARTS)

questions-page: .venv/ready-dev  ## Write docs/questions.md again
	$(BIN)/python -m tools.questions_page

screenshots: .venv/ready-dev  ## The pictures of the dashboard in docs/screenshots
	PYTHONPATH=tests:tests/browser $(BIN)/python tests/browser/take_screenshots.py docs/screenshots

format: .venv/ready-dev  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/ready-dev  ## Pin the dependencies again, with hashes
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--extra cluster pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt
	echo uv | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		-c requirements-dev.txt - -o requirements-uv.txt

clean:  ## Remove the environment and everything made by it
	rm -rf .venv demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
