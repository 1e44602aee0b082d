# Two commands: `make up` and `make test`. Each target makes what it needs when it is missing.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
KERNEL := src/bolide/kernel
BUILT := $(VENV)/built
SPARK := $(VENV)/spark
PYTEST := $(BIN)/python -m pytest -q
# Two at a time, as many as the smallest machine has cores; what must stay together says so (tests/conftest.py).
SIDE_BY_SIDE := -n 2

# The rooms whose tests run on both kernels, each kernel with its loop (tests/remoting/loops.py). Real clients, crash loops,
# benchmarks and Spark run once, on the compiled one; so does tests/kernel, where every test has both.
BOTH_KERNELS := tests/protocol tests/remoting tests/namesrv tests/store tests/broker --ignore-glob='*benchmark*'

.PHONY: help build up test lint bench interop interop-short soak sanitize fuzz features wheel clean
.DEFAULT_GOAL := help

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

build: $(BUILT)  ## the environment in .venv and the compiled kernel in place

$(BUILT): pyproject.toml setup.py $(wildcard $(KERNEL)/*.pyx $(KERNEL)/*.pxi $(KERNEL)/*.h)
	@test -n "$(PYTHON)" || { echo "Bolide needs Python 3.11 or newer: none was found (on Debian: apt-get install python3 python3-venv)"; exit 1; }
	@command -v $${CC:-cc} >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || { echo "Bolide needs a C compiler for its kernel: none was found (on Debian: apt-get install gcc)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || test -x $(BIN)/pip || { echo "Bolide needs Python's venv module: it was not found (on Debian: apt-get install python3-venv)"; exit 1; }
	@echo 'int main(void){return 0;}' | $${CC:-cc} -include "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" -x c -fsyntax-only - 2>/dev/null || { echo "Bolide needs Python's header files: Python.h was not found (on Debian: apt-get install python3-dev)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=24' 'setuptools>=77' 'Cython>=3.0,<4'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]'
	BOLIDE_KERNEL=compiled $(BIN)/python -c 'import bolide.kernel'
	@touch $(BUILT)

# Spark is 400 MB that a broker never loads: only what runs or reads the pipeline waits for it.
$(SPARK): $(BUILT)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'bolide[spark]'
	@touch $(SPARK)

up: build  ## a name server and a broker, ready for clients (more: make up ARGS=--help)
	@exec $(BIN)/bolide up $(ARGS)

test: $(SPARK)  ## every test, on both kernels
	BOLIDE_KERNEL=compiled $(PYTEST) $(SIDE_BY_SIDE) tests
	BOLIDE_KERNEL=plain $(PYTEST) $(SIDE_BY_SIDE) $(BOTH_KERNELS)

lint: $(SPARK)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

features: $(SPARK)  ## docs/features.md from the marks in the tests
	$(PYTEST) --collect-only --features-page docs/features.md tests interop > /dev/null

bench: $(SPARK)  ## every benchmark, the answers kept in benchmarks/results
	set -e; for question in $$(ls benchmarks/*.py | xargs -n1 basename -s .py | grep -v -e __init__ -e measure -e programs -e store_limits -e spark_kafka); do \
		$(BIN)/python -m benchmarks.$$question --keep; done

interop: $(SPARK)  ## with RocketMQ's own servers, clients and tools (needs Java 17 and Maven)
	$(PYTEST) interop

interop-short: $(SPARK)  ## the part of interop that fits five minutes
	$(PYTEST) interop -m short

soak: $(SPARK)  ## the long fault runs
	$(PYTEST) -m soak tests

# The kernel once more, in a package of its own beside the one in place: with checks of every access and every sum.
SANITIZED := build/sanitized
SANITIZED_RUN = LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libasan.so) $(CURDIR)/$(SANITIZED)/edges.so" \
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
	PYTHONPATH=$(CURDIR)/$(SANITIZED) PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 BOLIDE_KERNEL=compiled
SECONDS := 60
SEED := 1

$(SANITIZED)/built: $(BUILT) setup.py tests/fuzz/edges.c $(wildcard $(KERNEL)/*.pyx $(KERNEL)/*.pxi $(KERNEL)/*.h)
	BOLIDE_SANITIZE=1 $(BIN)/python setup.py -q build_ext --force --build-lib $(SANITIZED) --build-temp build/sanitized-objects
	$${CC:-gcc} -O2 -shared -fPIC -o $(SANITIZED)/edges.so tests/fuzz/edges.c
	@touch $(SANITIZED)/built

# Python's own sources change more often than the kernel, and are few.
.PHONY: sanitized
sanitized: $(SANITIZED)/built
	tar cf - -C src --exclude='*.so' --exclude='*.c' --exclude=__pycache__ bolide | tar xf - -C $(SANITIZED)

sanitize: sanitized  ## the kernel under ASan and UBSan: its tests, and a minute of fuzz
	$(SANITIZED_RUN) $(PYTEST) -p no:cacheprovider tests/kernel tests/fuzz
	$(SANITIZED_RUN) $(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

fuzz: sanitized  ## the fuzz of the kernel, SECONDS of it; new behaviour is added to tests/fuzz/corpus
	$(SANITIZED_RUN) $(BIN)/python -m tests.fuzz --grow --seconds $(SECONDS) --seed $$($(BIN)/python -c 'import time; print(time.time_ns())')

wheel: build  ## sdist and wheel in dist/, tried in an empty environment
	rm -rf dist build/empty
	$(BIN)/python -m build --no-isolation > /dev/null
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && BOLIDE_KERNEL=compiled empty/bin/bolide --version

clean:  ## everything that was made
	rm -rf $(VENV) build dist src/*.egg-info $(KERNEL)/*.c $(KERNEL)/*.so benchmarks/.build
