#!/bin/sh
# torch in a virtual environment of its own, /opt/venv; the only thing the next stage takes from this one.
#
# pip reads its own variables, which are build arguments: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL,
# PIP_TRUSTED_HOST, PIP_PROXY, PIP_CERT, PIP_NO_INDEX ...  Wheels that lie beside this file are looked
# at first; with PIP_NO_INDEX=1 nothing else is.
set -eu
here=$(dirname "$0")
python3 -m venv /opt/venv

# The system's certificates hold a site's own; pip would look only at those that it brings.
export PIP_CERT="${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}"
set -- --no-cache-dir --disable-pip-version-check --only-binary :all: --find-links "$here"
if [ -n "${TORCH_INDEX:-}" ]; then
    set -- "$@" --index-url "$TORCH_INDEX"
    # A mirror that the site named still serves what torch depends on.
    export PIP_EXTRA_INDEX_URL="${PIP_EXTRA_INDEX_URL:-} ${PIP_INDEX_URL:-}"
fi
/opt/venv/bin/pip install "$@" "torch==$TORCH_VERSION"
/opt/venv/bin/pip uninstall --yes --quiet pip
