# torch.compile on NVIDIA GPUs.  The wheels bring the CUDA runtime and Triton its own ptxas, so the base
# needs no CUDA; libcuda.so.1 belongs to the driver and is put in by the engine when the container starts.
# `atlas images build cuda` builds it; base, torch and index come from docker/images.yaml.
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
# Triton asks ldconfig for libcuda.so.1 and, where a read-only root kept its cache from being renewed, these folders.
# Any user id may be asked for: torch looks up a name for its cache folder, and finds these first.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp USER=atlas LOGNAME=atlas \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1 LC_ALL=C.UTF-8 \
    ATLAS_BACKEND=cuda \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu
COPY docker/selftest.py probe_payload.py /opt/inductor-atlas/
ARG ATLAS_VERSION
ARG TORCH_VERSION
ARG TORCH_BUILD
ARG BASE
ARG SOURCE
ARG REVISION
LABEL org.opencontainers.image.title="inductor-atlas cuda" \
      org.opencontainers.image.description="torch.compile for NVIDIA GPUs: Triton, g++, Python headers" \
      org.opencontainers.image.version="${ATLAS_VERSION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      inductor-atlas.backend="cuda" \
      inductor-atlas.torch="${TORCH_VERSION}" \
      inductor-atlas.build="${TORCH_BUILD}"
USER 10001:10001
WORKDIR /tmp
CMD ["python", "/opt/inductor-atlas/selftest.py"]
