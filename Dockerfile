# The server with the embedded models, without torch and without a compiler. Needs BuildKit (Docker's own since 23).
#
#   docker build .                 target cpu
#   docker build --target gpu .    ONNX Runtime for CUDA 13 with its libraries, about 2.5 GB
#
# The base is python:3.11.16-slim-bookworm by the digest of its index (all platforms). For a newer one:
# `docker buildx imagetools inspect python:3.11-slim-bookworm`, or --build-arg BASE_IMAGE=python:3.11-slim-bookworm.
ARG BASE_IMAGE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE_IMAGE} AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv --without-pip /opt/dragoman
# First what changes seldom: the dependencies, by installing the project without its code.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN touch dragoman.py

# A tool of its own environment lists what the image holds from PyPI.
FROM build AS sbom-tool
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/sbom && /opt/sbom/bin/pip install --constraint constraints.txt cyclonedx-bom

FROM build AS build-cpu
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/dragoman/bin/python install --constraint constraints.txt '.[cpu,tracing]' \
    && rm -rf build ./*.egg-info
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/dragoman/bin/python install --no-deps --force-reinstall .

FROM build AS build-gpu
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/dragoman/bin/python install --constraint constraints.txt '.[gpu,tracing]' \
    && rm -rf build ./*.egg-info
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/dragoman/bin/python install --no-deps --force-reinstall .

FROM sbom-tool AS sbom-cpu
RUN --mount=type=bind,from=build-cpu,source=/opt/dragoman,target=/opt/dragoman \
    /opt/sbom/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
    --output-file /sbom.cdx.json /opt/dragoman/bin/python

FROM sbom-tool AS sbom-gpu
RUN --mount=type=bind,from=build-gpu,source=/opt/dragoman,target=/opt/dragoman \
    /opt/sbom/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
    --output-file /sbom.cdx.json /opt/dragoman/bin/python

FROM ${BASE_IMAGE} AS runtime
ENV PATH=/opt/dragoman/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DRAGOMAN_SERVER__LISTEN=0.0.0.0:50051 \
    DRAGOMAN_METRICS__LISTEN=0.0.0.0:9464
USER 10001:10001
WORKDIR /
EXPOSE 50051 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["dragoman", "health"]
ENTRYPOINT ["dragoman"]
CMD ["serve"]
LABEL org.opencontainers.image.title="Dragoman" \
      org.opencontainers.image.description="A self-hosted translation service" \
      org.opencontainers.image.licenses="Apache-2.0 AND MPL-2.0"

FROM runtime AS gpu
COPY --from=build-gpu /opt/dragoman /opt/dragoman
COPY --from=sbom-gpu /sbom.cdx.json /opt/dragoman/share/sbom.cdx.json
ENV DRAGOMAN_ENGINE__PROVIDER=cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# What changes with every commit comes last.
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"

FROM runtime AS cpu
COPY --from=build-cpu /opt/dragoman /opt/dragoman
COPY --from=sbom-cpu /sbom.cdx.json /opt/dragoman/share/sbom.cdx.json
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
