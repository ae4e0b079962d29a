# Parley's image: docker build -t parley .   (podman and buildah: add --format docker, which keeps the health check)
# BASE is any image with Python 3.11 to 3.13 and venv. EXTRAS are those of pyproject.toml, like local or hf.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY scripts/build_backend.py scripts/move_imports.py scripts/wheel_layout.py scripts/
COPY app app
COPY engine engine
COPY web web
COPY configs configs
# An index of your own: --secret id=pip,src=pip.conf. Neither the image nor its history keeps that file.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    python3 -m venv /opt/parley \
    && PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_NO_CACHE_DIR=1 \
    /opt/parley/bin/python -m pip install ".${EXTRAS:+[${EXTRAS}]}" \
    && /opt/parley/bin/python -m pip uninstall --yes pip setuptools \
    && install -d -m 0700 -o 10001 -g 10001 /var/lib/parley

FROM ${BASE}
COPY --from=build /opt/parley /opt/parley
# Certificates that the server signs itself, and models of `parley pull`, lie in the volume; all else may be read-only.
COPY --from=build --chown=10001:10001 /var/lib/parley /var/lib/parley
ENV PATH=/opt/parley/bin:$PATH HOME=/var/lib/parley PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /var/lib/parley
VOLUME /var/lib/parley
USER 10001:10001
# The API, and the calls' sound where a configuration says `ice_ports: [40000, 40063]`.
EXPOSE 8000/tcp 40000-40063/udp
# SIGTERM begins the drain: give it server.drain_s and 10 s more (docker stop --time 20).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["python", "-m", "parley_voice.app.commands.health"]
ENTRYPOINT ["parley"]
CMD ["serve", "nano", "--host", "0.0.0.0"]
