# Everything a developer types. Needs Python 3.11 or later and make; the environments are made in the checkout.
#
#   make serve   .venv      what serving needs (no torch), then `dragoman serve`
#   make test    .venv-dev  lint, types and tests
#
# PYTHON=python3.12      another interpreter
# TORCH_INDEX=https://download.pytorch.org/whl/cpu   one more index for pip: the smaller CPU build of torch
# ARGS=...               more arguments for serve, soak and bench

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

newest_python = for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done
PYTHON ?= $(shell $(newest_python))
TORCH_INDEX ?=
ARGS ?=

SERVE_ENV := .venv
DEV_ENV := .venv-dev
SERVE_STAMP := $(SERVE_ENV)/installed.stamp
DEV_STAMP := $(DEV_ENV)/installed.stamp
DEV_PYTHON := $(DEV_ENV)/bin/python
PIP_FLAGS := --disable-pip-version-check --quiet --constraint constraints.txt
MODELS := en-pt pt-en
FAST := not slow and not image and not index and not weights and not gpu

.PHONY: help install serve format lint type test test-fast test-all golden protos bundle bundle-gpu bench soak independence clean

include deploy/deploy.mk
include deploy/monitoring.mk

help: ## Show these verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

install: $(SERVE_STAMP) $(DEV_STAMP) ## Make both environments

serve: $(SERVE_STAMP) ## Start the server on the embedded models
	@exec $(SERVE_ENV)/bin/dragoman serve $(ARGS)

test: lint type test-fast ## Lint, types, and the tests of a few minutes

test-fast: $(DEV_STAMP) ## The tests of a few minutes
	$(DEV_PYTHON) -m pytest -q -m "$(FAST)"

test-all: lint type ## Lint, types, and every test that needs no image, package index, extra weights or GPU
	$(DEV_PYTHON) -m pytest -q -m "not image and not index and not weights and not gpu"

lint: $(DEV_STAMP) ## ruff and the import contracts
	$(DEV_PYTHON) -m ruff check .
	$(DEV_PYTHON) -m ruff format --check .
	$(DEV_ENV)/bin/lint-imports --no-cache

type: $(DEV_STAMP) ## mypy, strict
	$(DEV_PYTHON) -m mypy

format: $(DEV_STAMP) ## Rewrite the sources in the house format
	$(DEV_PYTHON) -m ruff check --fix .
	$(DEV_PYTHON) -m ruff format .

golden: $(DEV_STAMP) ## Rewrite the golden files; review the diff
	DRAGOMAN_REWRITE_GOLDEN=1 $(DEV_PYTHON) -m pytest -q tests/golden

protos: $(DEV_STAMP) ## Compile the stubs beside the .proto files
	$(DEV_PYTHON) -m grpc_tools.protoc -I. -I"$$($(DEV_PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" --python_out=. --pyi_out=. --grpc_python_out=. protos/dragoman/v1/*.proto

bundle: $(DEV_STAMP) ## Export the embedded checkpoints again: int8, into model/pretrained/ (MODELS="en-pt ...")
	for model in $(MODELS); do \
		$(DEV_PYTHON) -m "model.recipes.$$(echo "$$model" | tr - _)" \
			--export "model/pretrained/$$model.checkpoint" "model/pretrained/$$model" || exit 1; done

bundle-gpu: $(DEV_STAMP) ## Export the embedded checkpoints to float16, for GPUs, into gpu-bundles/
	for model in $(MODELS); do \
		$(DEV_PYTHON) -m "model.recipes.$$(echo "$$model" | tr - _)" --precision float16 \
			--export "model/pretrained/$$model.checkpoint" "gpu-bundles/$$model" || exit 1; done

soak: $(DEV_STAMP) ## 64 clients for two minutes, 30 % of them cancelling; then everything must be zero
	$(DEV_PYTHON) -m benchmarks.soak $(ARGS)

independence: $(DEV_STAMP) ## The same answers alone, in one call, and among 64 clients (ARGS="FILE")
	$(DEV_PYTHON) -m benchmarks.independence $(ARGS)

bench: $(DEV_STAMP) ## Speed beside CTranslate2 and transformers on this machine, in less than ten minutes
	$(DEV_PYTHON) -m dragoman bench --quick $(ARGS)

clean: ## Remove the environments and caches
	rm -rf $(SERVE_ENV) $(DEV_ENV) .venv-gpu build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(SERVE_STAMP): pyproject.toml constraints.txt
	@echo "Preparing $(SERVE_ENV) (once) ..."
	@$(call make_environment,$(SERVE_ENV),cpu)
	@touch $@

$(DEV_STAMP): pyproject.toml constraints.txt
	@echo "Preparing $(DEV_ENV) (once, with torch: several minutes on a slow line) ..."
	@$(call make_environment,$(DEV_ENV),$(comma_extras))
	@touch $@

comma := ,
comma_extras := cpu$(comma)train$(comma)bench$(comma)deploy$(comma)dev

define make_environment
	test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed; name it with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(1)/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(1)
	$(1)/bin/python -m pip install $(PIP_FLAGS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[$(2)]'
endef
