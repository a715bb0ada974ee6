#!/bin/sh
# Find the Python that the environment is made with, and run the set-up program on it.
#   PYTHON=... if given; else the first of python3, python3.N on PATH that is new enough; else one that uv brings.
# POSIX shell only, and no feature newer than POSIX: this is the first thing that runs on a new machine.
here=$(dirname "$0")
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" && exec "$PYTHON" "$here/setup_env.py" "$@"
    echo "setup: PYTHON=$PYTHON does not run or is older than Python 3.10, which the harness needs." >&2
    exit 2
fi
for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    command -v "$name" >/dev/null 2>&1 && new_enough "$name" && exec "$name" "$here/setup_env.py" "$@"
done
command -v uv >/dev/null 2>&1 && exec uv run --no-project --python '>=3.10' python "$here/setup_env.py" "$@"

if command -v python3 >/dev/null 2>&1; then
    echo "setup: this computer's $(python3 --version 2>&1) is too old; the harness needs Python 3.10 or newer." >&2
else
    echo "setup: neither python3 nor uv is on PATH; the harness needs Python 3.10 or newer." >&2
fi
case "$(uname -s)" in
    Darwin) echo "setup: type: brew install python@3.13" >&2 ;;
    *) echo "setup: on Debian or Ubuntu, type as root: apt-get install python3 python3-venv" >&2 ;;
esac
echo "setup: or name another one: make PYTHON=/path/to/python3 ..." >&2
exit 2
