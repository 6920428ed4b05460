# Images, manifests and releases; part of the Makefile.
#
# BASE_IMAGE=python:3.11-slim-bookworm   another base than the Dockerfile's
# IMAGE=registry.example/dragoman        the name of the image
# DOCKER=podman  HELM=/path/to/helm      other programs

DOCKER ?= docker
HELM ?= helm
IMAGE ?= dragoman
BASE_IMAGE ?=
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# What is not committed: an image says that it holds it, a release is not made of it.
CHANGES = $(shell git status --porcelain 2>/dev/null)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)$(if $(CHANGES),-dirty)
# The address of this clone's origin, without a name and a password that may stand in it.
SOURCE ?= $(shell git config --get remote.origin.url 2>/dev/null | sed 's,//[^/@]*@,//,' | grep . || echo unknown)
CHART := deploy/helm/dragoman

image_arguments = $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) --build-arg VERSION=$(VERSION) \
	--build-arg REVISION=$(REVISION) --build-arg SOURCE=$(SOURCE)

.PHONY: image image-gpu test-image test-release manifests dist chart image-archive release loadtest

image: ## Build the container image dragoman:VERSION, for CPUs
	DOCKER_BUILDKIT=1 $(DOCKER) build --target cpu $(image_arguments) --tag $(IMAGE):$(VERSION) --tag $(IMAGE):latest $(ARGS) .

image-gpu: ## Build the container image dragoman:VERSION-gpu, for NVIDIA GPUs
	DOCKER_BUILDKIT=1 $(DOCKER) build --target gpu $(image_arguments) --tag $(IMAGE):$(VERSION)-gpu $(ARGS) .

test-image: $(DEV_STAMP) ## Run the built image: as it is, in a rendered Deployment, under load while it stops
	DRAGOMAN_IMAGE=$(IMAGE):$(VERSION) $(DEV_PYTHON) -m pytest -q -m image $(ARGS)

test-release: $(DEV_STAMP) ## Build the wheel and serve from an empty environment (installs from a package index)
	$(DEV_PYTHON) -m pytest -q -m index $(ARGS)

manifests: $(DEV_STAMP) ## Render the chart into deploy/kustomize/base and deploy/rendered (needs helm)
	HELM=$(HELM) $(DEV_PYTHON) -m deploy.render

dist: $(DEV_STAMP) ## Wheel and source distribution in dist/
	$(DEV_PYTHON) -m build --outdir dist .

chart: ## Package the Helm chart in dist/ (needs helm)
	$(HELM) lint --strict $(CHART)
	$(HELM) package --destination dist $(CHART)

image-archive: image ## Save the image, and the list of what it holds, in dist/
	mkdir -p dist
	$(DOCKER) run --rm --network none --entrypoint cat $(IMAGE):$(VERSION) /opt/dragoman/share/sbom.cdx.json \
		> dist/dragoman-$(VERSION).image.cdx.json
	$(DOCKER) save $(IMAGE):$(VERSION) | gzip -n > dist/dragoman-$(VERSION).image.tar.gz

.PHONY: check-release
check-release:
	@for program in $(DOCKER) $(HELM) gzip sha256sum; do command -v "$$program" >/dev/null \
		|| { echo "release: $$program is not installed" >&2; exit 1; }; done
	@$(if $(CHANGES),echo "release: there are changes that are not committed" >&2; exit 1,:)

release: check-release ## Wheel, source, image, chart, software bill of materials and checksums in dist/ (needs docker, helm)
	rm -rf dist
	$(MAKE) --no-print-directory dist chart image-archive
	cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

loadtest: $(DEV_STAMP) ## Servers of 0.4 CPU behind Envoy: more of them, a rolling restart, a kill (needs docker, envoy)
	$(DEV_PYTHON) -m deploy.loadtest --image $(IMAGE):$(VERSION) $(ARGS)
