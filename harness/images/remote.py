"""Long acts through a transport: a private folder, a log, a deadline there too, and what failures mean."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from harness.errors import AtlasError, Blocked, CommandFailed, DeadlineExceeded, HostError
from harness.runtimes import faults
from harness.transports.base import Completed, Transport

ACT_TIMEOUT = 120.0  # seconds for one short act
# How long after its own deadline a long act may still be heard of.
GRACE = 30.0

# Fixed shell texts: what differs is an argument, never part of them.
_MAKE = """
umask 077
case $1 in "~/"*) set -- "$HOME/${1#??}" ;; esac
mktemp -d "${1:-${TMPDIR:-/tmp}}/inductor-atlas-image.XXXXXX"
"""
# A log file, since a transport keeps the beginning of an output and the reason stands at its end; a
# deadline on the host itself, since one here would leave the command running there.
_LOGGED = """
log=$1 seconds=$2; shift 2
if command -v timeout >/dev/null 2>&1; then set -- timeout -k 10 "$seconds" "$@"; fi
"$@" >"$log" 2>&1 </dev/null
code=$?
tail -c 8000 "$log"
exit $code
"""

# What a build says -> reason, hint; the engine's own faults stand in runtimes/faults.py.
_FAULTS = (
    (r"certificate_verify_failed|certificate verify failed|signed by unknown authority",
     "certificate", "a mirror's certificate is not trusted: give its authority with --certificate NAME.crt"),
    (r"no matching distribution found for torch|could not find a version that satisfies the requirement torch",
     "no_torch", "name an index with --build-arg TORCH_INDEX=... or a folder of wheels with --wheels"),
    (r"unable to locate package|failed to fetch|temporary failure resolving|no installation candidate",
     "no_packages", "name a mirror with --build-arg APT_MIRROR=... or a proxy with --build-arg http_proxy=..."),
    (r"unauthorized|authentication required|requested access to the resource is denied",
     "registry_login", "log in with the engine first: docker login REGISTRY"),
    ((r"manifest unknown|no such host|pull access denied|failed to resolve source metadata|network is unreachable"
      r"|initializing source docker|tls handshake timeout|i/o timeout|connection refused"),
     "base_image", "name a mirror's base with --build-arg BASE=..., or load it into the engine first"),
)  # fmt: skip


@contextlib.contextmanager
def private_folder(transport: Transport, workdir: str | None = None) -> Iterator[str]:
    """A new folder on the host that only its user can enter; removed at the end.

    `workdir` is where (its temporary directory if None).  Raises Blocked or CommandFailed.
    """
    done = transport.run(("/bin/sh", "-c", _MAKE, "atlas", workdir or ""), timeout=ACT_TIMEOUT)
    folder = (done.stdout.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    if done.exit_code != 0 or not re.fullmatch(r"/[^\x00-\x1f\x7f]{1,1000}", folder):
        raise failure(done, "no temporary directory could be made")
    try:
        yield folder
    except BaseException:
        # What happened counts, not that a lost connection cannot be cleaned through.
        with contextlib.suppress(AtlasError):
            transport.run(("rm", "-rf", "--", folder), timeout=ACT_TIMEOUT)
        raise
    transport.run(("rm", "-rf", "--", folder), timeout=ACT_TIMEOUT)


def run_logged(transport: Transport, argv: Sequence[str], folder: str, timeout: float, what: str) -> None:
    """One long act; raises DeadlineExceeded, Blocked or CommandFailed, which begin with `what`."""
    script = ("/bin/sh", "-c", _LOGGED, "atlas", f"{folder}/log", f"{timeout:.0f}")
    done = transport.run((*script, *argv), timeout=timeout + GRACE)
    # 137: it had to be killed, because it did not heed the deadline.
    if done.exit_code in (124, 137):
        raise DeadlineExceeded(f"{what}: it did not end within {timeout:.0f} s")
    if done.exit_code != 0:
        raise failure(done, what)


def failure(done: Completed, what: str) -> HostError:
    """The error for a bad end: known causes with their cure, others with their last lines."""
    told = [line.rstrip() for line in (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").splitlines()]
    tail = "\n".join([line for line in told if line.strip()][-40:])
    known = faults.fault_of(tail)
    # To an engine a base that cannot be had is one more image that is absent; here they differ.
    if known is None or known.reason == "image_absent":
        for pattern, reason, hint in _FAULTS:
            for line in tail.splitlines():
                if re.search(pattern, line, re.IGNORECASE):
                    return Blocked(f"{what}: {line.strip()[:400]}", reason=reason, hint=hint)
    if known is not None:
        return Blocked(f"{what}: {known.message}", reason=known.reason, hint=known.hint)
    # Builders end with the code of the step that failed, which may be 127 too.
    if done.exit_code == 127 and not re.search(r"returned a non-zero|did not complete|exit status", tail):
        return Blocked(f"{what}: {faults.last_line(tail)}", reason="engine_absent", hint=faults.INSTALL["docker"])
    return CommandFailed(f"{what} (exit {done.exit_code}):\n" + "\n".join(tail.splitlines()[-12:])[:4000])
