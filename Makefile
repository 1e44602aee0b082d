# Two commands: `make up` and `make test`. Each target makes what it needs when it is missing.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
KERNEL := src/bolide/kernel
BUILT := $(VENV)/built
SPARK := $(VENV)/spark
PYTEST := $(BIN)/python -m pytest -q
# Tests start some hundreds of processes, and each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
# Three at a time for two cores, because one of them waits for a disk, a timer or a process of its own more often than not.
# What must stay together says so (tests/conftest.py).
SIDE_BY_SIDE := -n 3

# The rooms whose tests run on both kernels, each kernel with its loop (tests/remoting/loops.py). Real clients, crash loops,
# benchmarks and Spark run once, on the compiled one; so does tests/kernel, where every test has both.
BOTH_KERNELS := tests/protocol tests/remoting tests/namesrv tests/store tests/broker --ignore-glob='*benchmark*'
# Of these, what no kernel is asked for (tests/tidy/test_mirror.py).
NO_KERNEL := tests/protocol/bodies/test_bodies.py tests/protocol/test_named_fields.py tests/namesrv/test_routes_model.py
# Groups of several brokers each: they copy records as bytes that the store's tests read with both kernels. Rot in every
# place of a store, what operators ask, members, floods, hours of delays and of checks in virtual time, thousands of
# queues: tests/kernel holds what reads bytes there equal on both.
ONE_KERNEL := tests/broker/replication tests/broker/controlled tests/broker/admin tests/broker/members tests/broker/metrics \
	tests/broker/test_registration.py tests/broker/test_hostile.py tests/namesrv/test_shares.py tests/store/test_rot.py \
	tests/store/test_derived.py tests/store/test_follower.py tests/store/test_cut.py tests/store/test_model.py \
	tests/broker/later/test_timer_recovery.py tests/broker/later/test_delay.py tests/broker/later/test_timers.py \
	tests/broker/test_stats.py tests/broker/transactions/test_checks.py tests/store/test_many_queues.py

.PHONY: help build up test long browser lint bench interop interop-short soak sanitize fuzz features docs picture wheels try-install lint-release clean
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

# Programs that tests ask for real: controllers share an etcd, Prometheus tries queries and alerts, Chromium shows the pages.
# Where one is missing and may not be installed, its tests skip and say so; in CI a missing browser is a failure.
PROGRAMS := etcd prometheus chromium
.PHONY: $(PROGRAMS)
etcd: PACKAGE := etcd-server
$(PROGRAMS):
	@command -v $@ >/dev/null 2>&1 || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 \
		&& { apt-get update -qq; apt-get install -y -qq --no-install-recommends $(or $(PACKAGE),$@); } >/dev/null 2>&1; } \
		|| echo "no $@ here (on Debian: apt-get install $(or $(PACKAGE),$@)): the tests that ask it are skipped"

# 100 MB of schemas, for one test.
.PHONY: schemas
schemas: $(BUILT)
	@$(BIN)/python -c 'import kubernetes_validate' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check kubernetes-validate \
		|| echo "no schemas of Kubernetes here (pip install kubernetes-validate): the test of deploy/kubernetes is skipped"

test: $(SPARK) etcd prometheus chromium schemas  ## the tests, on both kernels
	BOLIDE_KERNEL=compiled $(PYTEST) $(SIDE_BY_SIDE) tests
	BOLIDE_KERNEL=plain $(PYTEST) $(SIDE_BY_SIDE) $(BOTH_KERNELS) $(addprefix --ignore=,$(NO_KERNEL) $(ONE_KERNEL))

long: $(SPARK) etcd prometheus  ## whole programs at work, each for five seconds and more, and the rest of large grids
	BOLIDE_KERNEL=compiled $(PYTEST) $(SIDE_BY_SIDE) -m 'long and not soak' tests

# All flows; those that matter most are in `make test`, beside which a browser for minutes would need a core to itself.
browser: $(SPARK) chromium  ## the dashboard's pages, as people go through them in Chromium
	$(PYTEST) -m '' tests/dashboard/test_browser.py

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

soak: $(SPARK)  ## the long fault runs, and examples by chance where every run has the same
	$(PYTEST) -m soak tests
	$(PYTEST) $(SIDE_BY_SIDE) -m 'hypothesis and not soak' --hypothesis-profile chance tests

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

# The notice is about another program of Material's authors.
docs: build  ## docs/ as a site in build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open build/site/index.html"

picture: build  ## docs/terminal.svg, the picture in the README, from commands that are really typed
	$(BIN)/python -m tools.terminal

wheels:  ## sdist and manylinux wheels in dist/, one for each Python from 3.11 on that is here
	.ci/wheels

try-install: wheels  ## what is in dist/, installed in empty environments, with and without a compiler
	.ci/try-install

lint-release:  ## the recipe of a release, checked by actionlint (needs Go)
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

clean:  ## everything that was made
	rm -rf $(VENV) build dist src/*.egg-info $(KERNEL)/*.c $(KERNEL)/*.so benchmarks/.build
