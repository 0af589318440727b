# make demo and make test are all that a fresh Debian 12 machine needs, as root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BROWSER := $(VENV)/.browser

# What the daemon, its runtimes and its tests use of the system, as package:file-that-proves-it.
SYSTEM := \
	python3-venv:/usr/lib/python3*/ensurepip/__main__.py \
	gcc:/usr/bin/gcc \
	libc6-dev:/usr/lib/*-linux-gnu/libc.a \
	nodejs:/usr/bin/node \
	nftables:/usr/sbin/nft \
	iproute2:/usr/sbin/ip \
	e2fsprogs:/usr/sbin/mkfs.ext4 \
	isal:/usr/bin/igzip \
	curl:/usr/bin/curl \
	ca-certificates:/etc/ssl/certs/ca-certificates.crt

.PHONY: setup demo test test-browser screenshots vendor run model bench docs lint format clean

## the virtual environment, the dependencies, and system packages if any are missing
setup: $(STAMP)

$(STAMP): pyproject.toml setup.py $(wildcard jail/native/*.c)
	@sh image/install-system-packages $(SYSTEM)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

## two runners, and the whole main job on them, readably
demo: setup
	@$(BIN)/python -m tests.e2e.demo

## everything that CI holds
test: setup
	$(BIN)/python -m pytest

## the console page in Chromium; ONLY='-k published' for some of it
test-browser: setup $(BROWSER)
	$(BIN)/python -m pytest tests/browser $(ONLY)

$(BROWSER): $(STAMP)
	@sh image/install-system-packages chromium:/usr/bin/chromium fonts-dejavu-core:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
	$(BIN)/python -m pip install --quiet --editable '.[browser]'
	touch $@

## the pictures of docs/console.md
screenshots: setup $(BROWSER)
	SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/browser -k 'looks or narrow or published'

## what the console page has from npm, once more: git shows whether it is the same
vendor:
	sh image/console/vendor/fetch

## serve on 127.0.0.1:8080
run: setup
	@$(BIN)/python -m tests.e2e.hello &
	@RUNNER_CONSOLE=true $(BIN)/sandbox-runner serve

## 10,000 random steps of the real daemon beside the model; MODEL_SEED chooses others
model: setup
	MODEL_STEPS=$${MODEL_STEPS:-10000} MODEL_SEED=$${MODEL_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest tests/model/test_live.py

## speed, as ratios to a floor taken in the same run
bench: setup
	@$(BIN)/python -m tests.bench

## the pages that are made from tables in the code
docs: setup
	@$(BIN)/python -m docs.generate

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info jail/bin .pytest_cache .mypy_cache .ruff_cache .hypothesis
