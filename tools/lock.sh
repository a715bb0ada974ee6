#!/bin/sh
# Write requirements/*.lock from pyproject.toml: every version pinned with its hashes, for every platform
# and every Python from 3.10 on, and no index address.  torch is not in them: its build depends on the machine.
set -eu
cd "$(dirname "$0")/.."
uv=$(command -v uv || echo .venv/bin/uv)
if ! command -v "$uv" >/dev/null 2>&1; then
    echo "lock: uv is not here; type: .venv/bin/python -m pip install uv" >&2
    exit 2
fi
compile() {
    target=$1
    shift
    "$uv" pip compile --quiet --no-config --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
        --no-annotate --no-header --upgrade --output-file "requirements/$target.lock.new" "$@"
    {
        echo "# Made by \`make lock\` from pyproject.toml; do not edit. Install with: pip install --require-hashes -r"
        cat "requirements/$target.lock.new"
    } >"requirements/$target.lock"
    rm "requirements/$target.lock.new"
}
mkdir -p requirements
compile core pyproject.toml
# One version of a package wherever it appears, so the three locks can live in one environment.
compile dev --group dev --constraint requirements/core.lock
compile build --group build --constraint requirements/core.lock --constraint requirements/dev.lock
