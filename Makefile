# Thin on purpose: a target makes the environment it needs (tools/setup.sh) and passes words on to `atlas`.
# Written for GNU make 3.81 (macOS): no .ONESHELL, no != and no $(file ...).

.DEFAULT_GOAL := help
SHELL = /bin/sh

# Words for atlas. Only the command line counts: some shells export HOST, which would name this computer.
# `value` keeps make from expanding what a person typed, and the recipes read the words from the
# environment, so no text in them is ever run: not $(shell ...), not `...`, not ;.
WORDS := HOST LIMIT FUNCTION DEVICE TIMEOUT RUN ARGS
$(foreach w,$(WORDS),$(eval override $(w) := $$(if $$(filter command,$$(origin $(w))),$$(value $(w)))))
export $(WORDS)
# These two also count when they come from the environment.
ifdef PYTHON
override PYTHON := $(value PYTHON)
export PYTHON
endif

SETUP := @sh tools/setup.sh
PY := .venv/bin/python
ATLAS := @$(PY) -m harness
SELECT := $${DEVICE:+--device="$$DEVICE"} $${FUNCTION:+--function="$$FUNCTION"} $${TIMEOUT:+--timeout="$$TIMEOUT"}
WHICH := $${LIMIT:+--limit="$$LIMIT"} $${HOST:+-- "$$HOST"}

.PHONY: help probe probe-all demo report plan hosts test lint bench lock schemas update-images system-deps clean

help:  ## this text
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@echo "  Narrow a run with DEVICE= FUNCTION= LIMIT= TIMEOUT=; choose a Python with PYTHON=."
	@echo "  Set-up: TORCH_INDEX=cpu|cu126|ADDRESS names where torch comes from; ALLOW_CUDA=1, ANYWAY=1."

probe:  ## probe one host: make probe HOST=localhost
	@test -n "$$HOST$$LIMIT" || { echo "say which host: make probe HOST=localhost, or make probe-all" >&2; exit 2; }
	$(SETUP) probe
	$(ATLAS) probe $(SELECT) $(WHICH)

probe-all:  ## probe every host in hosts.yaml, side by side; LIMIT=PATTERN narrows them
	$(SETUP) probe
	$(ATLAS) probe --all $(SELECT) $(WHICH)

demo:  ## see the whole thing without a lab: ssh hosts on the loopback, probed and reported
	$(SETUP) torch
	$(ATLAS) demo

report:  ## make the report of a run again: make report RUN=...; the newest without RUN
	$(SETUP) core
	$(ATLAS) report $${RUN:+-- "$$RUN"}

plan:  ## what would run, and why something would be skipped
	$(SETUP) core
	$(ATLAS) plan $(SELECT) $(WHICH)

hosts:  ## the hosts of hosts.yaml
	$(SETUP) core
	$(ATLAS) hosts

test:  ## run all tests; ARGS="-k word" narrows them
	$(SETUP) test
	@$(PY) -m pytest $$ARGS

lint:  ## style, types, import layers
	$(SETUP) dev
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports

bench:  ## the measurements behind the speed claims
	$(SETUP) torch
	@$(PY) -m benchmarks.probe_cost $$ARGS

lock:  ## refresh requirements/*.lock (needs uv)
	@sh tools/lock.sh

schemas:  ## write the JSON schemas again from the records
	$(SETUP) core
	@$(PY) -m harness.schemas

update-images:  ## write the digests of the base images into docker/images.yaml, where a registry answers
	$(SETUP) core
	@$(PY) tools/update_images.py

system-deps:  ## Debian: install what the tests can use (as root; otherwise prints the line)
	$(SETUP) system-deps

clean:  ## remove the environment and caches; reports stay
	rm -rf .venv uv.toml uv.lock .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
