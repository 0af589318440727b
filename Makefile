# make demo and make test are all that a fresh Debian 12 machine needs, as root.

# Every start of a daemon would compile all of its modules again, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More than cores: most tests wait for a jail, a deadline or a stop. A file stays in one process.
TEST_WORKERS ?= 4
PYTEST_SPREAD = $(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) --dist loadfile
# Real jails, deadlines and kills beside each other on few cores: a file in which something failed has
# to hold when it is run by itself, and the log shows both runs. What fails twice has failed.
AGAIN = $(BIN)/python -m tests.again
STAMP := $(VENV)/.installed
BROWSER := $(VENV)/.browser

# What the daemon, its runtimes and its tests use of the system, as package:file-that-proves-it.
SYSTEM := \
	python3-venv:/usr/lib/python3*/ensurepip/__main__.py \
	python3-dev:/usr/include/python3*/Python.h \
	python3-pip:/usr/lib/python3/dist-packages/pip/__main__.py \
	git:/usr/bin/git \
	gcc:/usr/bin/gcc \
	libc6-dev:/usr/lib/*-linux-gnu/libc.a \
	nodejs:/usr/bin/node \
	nftables:/usr/sbin/nft \
	iproute2:/usr/sbin/ip \
	e2fsprogs:/usr/sbin/mkfs.ext4 \
	isal:/usr/bin/igzip \
	curl:/usr/bin/curl \
	shellcheck:/usr/bin/shellcheck \
	ca-certificates:/etc/ssl/certs/ca-certificates.crt

# For TLC, the second checker of the models.
LONG_SYSTEM := default-jre-headless:/usr/bin/java

# What the proofs of the image use beyond that.
IMAGE_SYSTEM := \
	buildah:/usr/bin/buildah \
	podman:/usr/bin/podman \
	runc:/usr/sbin/runc \
	mmdebstrap:/usr/bin/mmdebstrap
VM_SYSTEM := \
	qemu-system-x86:/usr/bin/qemu-system-x86_64 \
	busybox-static:/bin/busybox

.PHONY: help setup demo test test-long test-browser screenshots vendor run
.PHONY: model soak fuzz big crash bench docs lint format clean
.PHONY: image test-image test-vm

.DEFAULT_GOAL := help

## what there is to make
help:
	@awk '/^## / { says = substr($$0, 4); next } \
		/^[a-z-]+:/ && says { sub(/:.*/, ""); printf "make %-14s%s\n", $$0, says } \
		{ says = "" }' $(firstword $(MAKEFILE_LIST))

## the virtual environment, the dependencies, and system packages if any are missing
setup: $(STAMP)

$(STAMP): pyproject.toml setup.py $(wildcard jail/native/*.c)
	@sh image/install-system-packages $(SYSTEM)
	@echo "installing into $(VENV), half a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

## two runners, and the whole main job on them, readably
demo: setup
	@$(BIN)/python -m tests.e2e.demo

## the tests: under five minutes on two cores
test: setup
	$(PYTEST_SPREAD) -m 'not alone and not long' || $(AGAIN) -m 'not alone and not long'
	$(BIN)/python -m pytest -m alone || $(AGAIN) -m alone

## what explores and repeats, in short: the models, crashes at system calls, a soak, some fuzzing
test-long: setup
	@sh image/install-system-packages $(LONG_SYSTEM)
	$(PYTEST_SPREAD) -m long || $(AGAIN) -m long
	FUZZ_SECONDS=$${FUZZ_SECONDS:-15} $(BIN)/python -m tests.fuzz

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

## the image, built without a Docker daemon
image:
	@sh image/install-system-packages $(IMAGE_SYSTEM)
	image/build sandbox-runner

# 77: this machine cannot run it, and the proof has said why.
PROVE = $(BIN)/python -m tests.image

## the image as a container, with the README's flags; SHORT=1 leaves some of it out
test-image: setup
	@sh image/install-system-packages $(IMAGE_SYSTEM) || echo "trying without them"
	@$(PROVE).container || test $$? -eq 77

## the image as a MicroVM with a kernel of its own; SHORT=1 leaves most of it out
test-vm: setup
	@sh image/install-system-packages $(IMAGE_SYSTEM) $(VM_SYSTEM) || echo "trying without them"
	@$(PROVE).machine || test $$? -eq 77

# The daemon takes the shell's place and its process id: what make is told to end, it ends.
## serve on RUNNER_HOST and RUNNER_PORT, 127.0.0.1:8080, with the console page
run: setup
	@export RUNNER_CONSOLE=$${RUNNER_CONSOLE:-true}; \
	($(BIN)/python -m tests.e2e.hello $$$$ &); \
	exec $(BIN)/sandbox-runner serve

## 10,000 random steps of the real daemon beside the model; MODEL_SEED chooses others
model: setup
	MODEL_STEPS=$${MODEL_STEPS:-10000} MODEL_SEED=$${MODEL_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest tests/model/test_live.py

## 3,000 executions, one in ten hostile, and whether anything grows; a few minutes
soak: setup
	@$(BIN)/python -m tests.soak 3000

## FUZZ_SECONDS (600) of hostile archives, guided by coverage where atheris can be had
fuzz: setup
	@$(BIN)/python -m pip install --quiet --editable '.[fuzz]' || echo "without atheris: no guide"
	@$(BIN)/python -m tests.fuzz

## the workspaces that a test run has no time for: a file of 5 GiB, 200,000 files
big: setup
	@$(BIN)/python -m tests.big

## the daemon killed, and its disk failing, at every system call that touches its files: 30 minutes
crash: setup
	CRASH_POINTS=all $(BIN)/python -m pytest -s \
		tests/faults/test_crash_matrix.py tests/faults/test_crash_starts.py tests/faults/test_failing_calls.py

## speed, as ratios to a floor taken in the same run
bench: setup
	@$(BIN)/python -m tests.bench

## the pages that are made from tables in the code
docs: setup
	@$(BIN)/python -m docs.generate

## what the tools say of the style and the types
lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

## what the tools can put right by themselves
format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## away with all that was made
clean:
	rm -rf $(VENV) build dist *.egg-info jail/bin .pytest_cache .mypy_cache .ruff_cache .hypothesis
