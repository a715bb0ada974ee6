"""Bring an image of this machine's engine to a host that has no network: save here, load there."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
import zlib
from collections.abc import Generator, Sequence

from harness.errors import CommandFailed, DeadlineExceeded
from harness.images.acts import find
from harness.images.remote import GRACE, failure, private_folder
from harness.records.images import ImageFacts
from harness.transports.base import Completed, Transport

SHIP_TIMEOUT = 3600.0
# `put` holds what it sends in memory: an image of gigabytes travels in pieces.
PIECE = 32 * 1024 * 1024
_CHUNK = 1024 * 1024

# Each piece goes as soon as it was read, so that the host never holds the image twice.  Unpacked before
# `load` sees it: podman 4 takes compressed archives of its own making only.
_LOAD = """
folder=$1 seconds=$2; shift 2
if command -v timeout >/dev/null 2>&1; then set -- timeout -k 10 "$seconds" "$@"; fi
for part in "$folder"/part-*; do cat "$part" && rm "$part"; done | gzip -dc | "$@"
"""


def ship(
    source: Sequence[str],
    transport: Transport,
    engine: Sequence[str],
    reference: str,
    *,
    workdir: str | None = None,
    timeout: float = SHIP_TIMEOUT,
) -> ImageFacts:
    """Bring the image that the engine of this machine (`source`) has to the host's engine.

    Raises Blocked or CommandFailed where it cannot be saved or loaded, DeadlineExceeded after `timeout`
    seconds.
    """
    end = time.monotonic() + timeout
    with private_folder(transport, workdir) as folder, contextlib.closing(saved(source, reference, end)) as pieces:
        for number, piece in enumerate(pieces):
            transport.put(piece, f"{folder}/part-{number:06d}", mode=0o600)
        left = max(1.0, end - time.monotonic())
        argv = ("/bin/sh", "-c", _LOAD, "atlas", folder, f"{left:.0f}", *engine, "load")
        done = transport.run(argv, timeout=left + GRACE)
    if done.exit_code in (124, 137):
        raise DeadlineExceeded(f"{reference} was not loaded within {timeout:.0f} s")
    if done.exit_code != 0:
        raise failure(done, f"{reference} could not be loaded")
    found = find(transport, engine, reference)
    if found is None:
        raise CommandFailed(f"{engine[0]} reported success and does not have {reference}", reason="engine_failed")
    return found


def saved(source: Sequence[str], reference: str, end: float, piece: int = PIECE) -> Generator[bytes, None, None]:
    """What `save` of this machine's engine writes, compressed, in pieces; killed at the time `end`."""
    argv = (*source, "save", reference)
    pack = zlib.compressobj(1, wbits=31)  # gzip
    waiting = bytearray()
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
    except OSError as error:
        raise failure(Completed(argv, 127, b"", str(error).encode()), f"{reference} could not be saved") from error
    killer = threading.Timer(max(0.0, end - time.monotonic()), process.kill)
    with process:
        killer.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            while chunk := process.stdout.read(_CHUNK):
                waiting += pack.compress(chunk)
                while len(waiting) >= piece:
                    yield bytes(waiting[:piece])
                    del waiting[:piece]
            said = process.stderr.read(8000)
            code = process.wait()
        finally:
            killer.cancel()
            process.kill()
    if code < 0 and time.monotonic() >= end:
        raise DeadlineExceeded(f"{reference} was not saved in time")
    if code != 0:
        raise failure(Completed(argv, code, b"", said), f"{reference} could not be saved")
    yield bytes(waiting + pack.flush())
