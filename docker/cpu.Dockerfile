# torch.compile on the CPU: C++ kernels, built by g++.
# `atlas images build cpu` builds it; base, torch and index come from docker/images.yaml.
ARG BASE
FROM ${BASE} AS toolchain
ARG APT_MIRROR
COPY docker/toolchain.sh docker/certs/ /opt/inductor-atlas/build/
RUN sh /opt/inductor-atlas/build/toolchain.sh

# A stage of its own: neither wheels, nor pip's cache, nor an index address with a password in it
# reaches the image or its history.
FROM toolchain AS torch
ARG TORCH_VERSION
ARG TORCH_INDEX
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_PROXY
ARG PIP_CERT
ARG PIP_NO_INDEX
ARG PIP_DEFAULT_TIMEOUT
COPY docker/torch.sh docker/wheels/ /tmp/wheels/
RUN sh /tmp/wheels/torch.sh

FROM toolchain
COPY --from=torch /opt/venv /opt/venv
# Any user id may be asked for: torch looks up a name for its cache folder, and finds these first.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp USER=atlas LOGNAME=atlas \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1 LC_ALL=C.UTF-8 \
    ATLAS_BACKEND=cpu
COPY docker/selftest.py probe_payload.py /opt/inductor-atlas/
ARG ATLAS_VERSION
ARG TORCH_VERSION
ARG TORCH_BUILD
ARG BASE
ARG SOURCE
ARG REVISION
LABEL org.opencontainers.image.title="inductor-atlas cpu" \
      org.opencontainers.image.description="torch.compile for CPUs: g++, Python headers, OpenMP" \
      org.opencontainers.image.version="${ATLAS_VERSION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      inductor-atlas.backend="cpu" \
      inductor-atlas.torch="${TORCH_VERSION}" \
      inductor-atlas.build="${TORCH_BUILD}"
USER 10001:10001
WORKDIR /tmp
CMD ["python", "/opt/inductor-atlas/selftest.py"]
