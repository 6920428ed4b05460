# The server with the embedded models, on CPU, without torch.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/dragoman
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# First what changes seldom: the dependencies, by installing the project without its code.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN --mount=type=cache,target=/root/.cache/pip \
    touch dragoman.py \
    && pip --python /opt/dragoman/bin/python install --constraint constraints.txt '.[cpu]' \
    && rm -rf build ./*.egg-info dragoman.py
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/dragoman/bin/python install --no-deps --force-reinstall .

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="Dragoman" \
      org.opencontainers.image.description="A self-hosted translation service" \
      org.opencontainers.image.licenses="Apache-2.0 AND MPL-2.0"
COPY --from=build /opt/dragoman /opt/dragoman
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
