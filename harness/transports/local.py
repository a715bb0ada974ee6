"""Transport `local`: this machine, held to the same contract as a remote one."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from harness.errors import CommandFailed, DeadlineExceeded, Unreachable
from harness.records.inventory import Host
from harness.transports.base import OUTPUT_LIMIT, Completed

# A background process may keep the output open after the command has ended.
TRAILING_SECONDS = 1.0
_CHUNK = 64 * 1024


class LocalTransport:
    """Commands as subprocesses in `/`, files by absolute path; `ssh_config` means nothing here."""

    def __init__(self, host: Host, *, ssh_config: Path | None = None) -> None:  # noqa: ARG002 - one signature for all
        self._host = host
        self._is_open = False

    def open(self) -> None:
        """Nothing to connect; always succeeds."""
        self._is_open = True

    def close(self) -> None:
        """Nothing to disconnect."""
        self._is_open = False

    def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        """Run one command in a session of its own, which is killed whole at the deadline.

        As over SSH an unknown program is exit code 127, one that cannot be executed 126.
        """
        self._require_open()
        words = tuple(argv)
        if not words or any("\0" in word for word in words):
            raise CommandFailed(f"{self._host.name}: {words!r} cannot be run: it is empty or holds a NUL")
        end = time.monotonic() + timeout
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            return Completed(words, code, b"", f"{words[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        with process:
            try:
                kept = _read(process, end)
            except TimeoutError:
                raise DeadlineExceeded(
                    f"{self._host.name}: {shlex.join(words)[:200]} did not end within {timeout:g} s"
                ) from None
            finally:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            return Completed(words, process.wait(), *kept)

    def put(self, data: bytes, path: str, *, mode: int) -> None:
        """Write a new file; see Transport.put."""
        self._require_open()
        self._require_absolute("write", path)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as stream:
                os.fchmod(handle, mode)
                stream.write(data)
        except OSError as error:
            raise CommandFailed(f"{self._host.name}: cannot write {path}: {error.strerror}") from error

    def get(self, path: str, *, limit: int) -> bytes:
        """Read a regular file; see Transport.get."""
        self._require_open()
        self._require_absolute("read", path)
        try:
            # Non-blocking: opening a named pipe would otherwise wait for its writer.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise CommandFailed(f"{self._host.name}: cannot read {path}: not a regular file")
            with os.fdopen(handle, "rb") as stream:
                data = stream.read(limit + 1)
        except OSError as error:
            raise CommandFailed(f"{self._host.name}: cannot read {path}: {error.strerror}") from error
        if len(data) > limit:
            raise CommandFailed(f"{self._host.name}: {path} is longer than {limit} bytes", reason="too_long")
        return data

    def _require_open(self) -> None:
        if not self._is_open:
            raise Unreachable(f"{self._host.name}: not connected")

    def _require_absolute(self, verb: str, path: str) -> None:
        if not path.startswith("/") or "\0" in path:
            raise CommandFailed(f"{self._host.name}: cannot {verb} {path!r}: not an absolute path")


def _read(process: subprocess.Popen[bytes], end: float) -> tuple[bytes, bytes]:
    """The head of both streams; returns soon after the process has ended, whoever holds them.

    Raises TimeoutError at `end`.
    """
    streams: list[IO[bytes] | None] = [process.stdout, process.stderr]
    kept = bytearray(), bytearray()
    ended_at: float | None = None
    with selectors.DefaultSelector() as ready:
        for stream, buffer in zip(streams, kept, strict=True):
            if stream is not None:
                ready.register(stream, selectors.EVENT_READ, buffer)
        while ready.get_map() or process.poll() is None:
            now = time.monotonic()
            if process.poll() is not None and ended_at is None:
                ended_at = now
            if ended_at is not None and now - ended_at > TRAILING_SECONDS:
                break
            if now >= end:
                raise TimeoutError
            for key, _ in ready.select(min(end - now, 0.05)):
                chunk = os.read(key.fd, _CHUNK)
                if chunk:
                    key.data.extend(chunk[: OUTPUT_LIMIT - len(key.data)])
                else:
                    ready.unregister(key.fileobj)
    return bytes(kept[0]), bytes(kept[1])
