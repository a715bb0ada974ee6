"""Start a command in a container and let the engine keep it: docker and podman, through any transport.

The host needs an engine and /bin/sh, no python.  A container ends at its deadline by itself, and goes
with everything in it when it is removed: process 1 takes the others along.  One that was left behind
is found by its label.
"""

from __future__ import annotations

import contextlib
import re
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from harness.errors import Blocked, CommandFailed, DeadlineExceeded, HostError, Unreachable, WireError
from harness.launchers import shell
from harness.launchers.base import Place, State
from harness.launchers.container import NOBODY, ContainerLauncher
from harness.runtimes import faults, replies, run_words
from harness.transports.base import Completed, Transport

KEEP_HOURS = 24.0  # how long a directory or a container that was left behind may be asked for
ACT_TIMEOUT = 60.0  # seconds for one short act
START_TIMEOUT = 180.0  # a cold engine first unpacks what the image's layers need
STOP_GRACE = 5  # seconds between asking and killing: the payload writes its last record
OVERDUE = 120.0  # seconds past its own deadline after which a container is taken for stuck
NEVER_STARTED = 3600.0  # seconds after which a container that was made and never started is taken for lost
FREE_KIB = 256 * 1024  # the precompiled header alone takes half of it
FULL_KIB = 64  # less than that is full: file systems keep a few blocks back
PROGRESS_CHUNK = 32 * 1024
SWEPT_AT_ONCE = 20  # their descriptions together stay below what a transport keeps of an output
_IN_USE = re.compile(rb"is already in use")
_GONE = re.compile(r"no such (container|object)|no container with (name|id)", re.IGNORECASE)


class EngineLauncher(ContainerLauncher):
    """The acts of launchers.base.Launcher, for one spec on one host."""

    def prepare(self, transport: Transport, python: str, root: str | None) -> Place:
        """Make a private directory on the host; `python` is the image's.

        Raises Blocked where there is no room, no right to write, or no right to run programs.
        """
        owner = "{}:{}".format(*NOBODY) if self.user() == NOBODY else ""
        words = (root or "", self.engine.engine, owner, str(FREE_KIB))
        reading = shell.read(transport.run(shell.script(shell.PREPARE, *words), timeout=ACT_TIMEOUT))
        if not {"root", "folder"} <= reading.words.keys():
            raise CommandFailed("the host did not say where its directory is", reason="command_failed")
        place = Place(reading.words["root"], reading.words["folder"], python, "", run_words.INSIDE)
        try:
            self.job(place, {}, 1.0)
        except ValidationError:
            self.discard(transport, place)
            raise Blocked(f"{place.folder} cannot be bound into a container: a volume's path has no ':' and no ','",
                          reason="no_writable_dir",
                          hint="set `workdir:` of this host in hosts.yaml to a plain path") from None  # fmt: skip
        return place

    def push(self, transport: Transport, place: Place, payload: Path) -> str:
        """Put the payload into the directory; returns its sha256, the same here and there.

        Raises CommandFailed where it arrived changed, Blocked where the disk is full.
        """
        data, path = payload.read_bytes(), f"{place.folder}/probe_payload.py"
        try:
            # Not a secret, and the container's user is another one where the host's is root.
            transport.put(data, path, mode=0o644)
            arrived = transport.get(path, limit=len(data) + 1)
        except CommandFailed as error:
            raise faults.fault_of(error.message) or error from error
        if arrived != data:  # read back: the host may have no program that hashes
            raise CommandFailed(f"{path} arrived changed: it is not what was sent", reason="hash")
        return sha256(data).hexdigest()

    def start(self, transport: Transport, place: Place, argv: tuple[str, ...], environment: dict[str, str],
              deadline: float) -> None:  # fmt: skip
        """Start argv in a container with a deadline in seconds; raises Blocked or CommandFailed."""
        words = self.wrap(place, argv, environment, deadline)
        self.sweep(transport, place.root)
        try:
            done = transport.run(words, timeout=START_TIMEOUT)
        except DeadlineExceeded as error:
            self._remove(transport, place)
            engine = self.engine.engine
            raise Blocked(f"{engine} did not start the container within {START_TIMEOUT:.0f} s",
                          reason="engine_down", hint=f"sudo systemctl restart {engine}") from error  # fmt: skip
        if done.exit_code != 0:
            if not _IN_USE.search(done.stderr):  # that one runs
                self._remove(transport, place)  # one that could not start stays behind as `created`
            raise faults.refusal(done, image=self.spec.image, backend=self.spec.backend)

    def poll(self, transport: Transport, place: Place, offset: int) -> State:
        """What the container is doing; `offset` is where the last poll's progress ended.

        Raises Blocked where the engine's daemon has gone away.
        """
        container = self._inspect(transport, place)  # before the files: once it has ended they change no more
        state = _state_of(container)
        words = (place.folder, str(offset), str(PROGRESS_CHUNK), "" if state == "running" else "hash")
        done = transport.run(shell.script(shell.POLL, *words), timeout=ACT_TIMEOUT)
        reading = shell.read(done, texts=("progress", "stderr"))
        progress = reading.texts.get("progress", b"")
        hashed = reading.words.get("sha256")
        said = reading.texts.get("stderr", b"").decode("utf-8", "replace")
        ended = container is not None and state == "ended"
        return State(
            state=state, offset=offset + len(progress), progress=progress.decode("utf-8", "replace"),
            result_bytes=shell.number(reading, "result"),
            result_sha256=hashed if re.fullmatch("[0-9a-f]{64}", hashed or "") else None,
            exit_code=container.state.exit_code if container is not None and ended else None,
            exit_reason=_reason_of(container) if container is not None and ended else None,
            survivors=(), stderr=said + _disk_words(place, reading) + self._last_words(place, container, said),
        )  # fmt: skip

    def cancel(self, transport: Transport, place: Place) -> tuple[int | str, ...]:
        """Ask, wait, remove; then look for the label.  Returns the containers that would not go."""
        with contextlib.suppress(DeadlineExceeded):
            self._run(transport, "stop", "-t", str(STOP_GRACE), self.name(place))
        return self._remove(transport, place)

    def clean(self, transport: Transport, place: Place) -> str | None:
        """Remove container and directory, unless it runs; returns why they could not be, or None."""
        container = self._inspect(transport, place)
        if container is not None and _state_of(container) == "running":
            return f"{place.folder}: its container {container.plain_name} runs"
        left = self._remove(transport, place) if container is not None else ()
        return f"containers {', '.join(left)}" if left else self.discard(transport, place)

    def discard(self, transport: Transport, place: Place) -> str | None:
        """Remove a directory in which nothing was started; returns why it could not be, or None."""
        done = transport.run(shell.script(shell.REMOVE, place.folder), timeout=ACT_TIMEOUT)
        return None if shell.read(done).words.get("removed") == "yes" else f"{place.folder}: files would not go"

    def sweep(self, transport: Transport, root: str) -> tuple[str, ...]:
        """Remove what earlier runs left on this engine; returns names and directories.  Never fails a run.

        Of this user only: containers past their deadline, or ended longer ago than the keep time, and
        directories that old without a container.  A live run is neither.
        """
        try:
            return self._sweep(transport, root)
        except Unreachable:
            raise
        except (HostError, WireError):
            return ()

    def _sweep(self, transport: Transport, root: str) -> tuple[str, ...]:
        ids = self._labelled(transport, f"{run_words.LABEL}.owner={self.owner()}")
        containers: tuple[replies.Container, ...] = ()
        if ids:
            done = self._run(transport, "container", "inspect", *ids[:SWEPT_AT_ONCE])
            containers = replies.read_list(replies.Container, done.stdout)
        now = shell.number(shell.read(transport.run(shell.script(shell.NOW), timeout=ACT_TIMEOUT)), "now")
        stale = tuple(container.plain_name for container in containers if _abandoned(container, now))
        for name in stale:
            self._run(transport, "rm", "--force", "--volumes", name)
        if len(ids) > SWEPT_AT_ONCE:  # whose directories are still in use cannot be told
            return stale
        kept = [container.plain_name for container in containers if container.plain_name not in stale]
        words = (root, self.engine.engine, f"{KEEP_HOURS * 60:.0f}", self.name(Place(root, "/", "", "")), *kept)
        reading = shell.read(transport.run(shell.script(shell.SWEEP, *words), timeout=ACT_TIMEOUT))
        return (*stale, *reading.lists.get("removed", ()))

    def _run(self, transport: Transport, *words: str) -> Completed:
        return transport.run((self.engine.engine, *words), timeout=ACT_TIMEOUT)

    def _inspect(self, transport: Transport, place: Place) -> replies.Container | None:
        """The container; None where there is none.  Raises Blocked or CommandFailed where it cannot be told."""
        done = self._run(transport, "container", "inspect", self.name(place))
        if done.exit_code != 0:
            if _GONE.search(done.stderr.decode("utf-8", "replace")):
                return None
            raise faults.refusal(done)
        try:
            containers = replies.read_list(replies.Container, done.stdout)
        except WireError as error:
            raise CommandFailed(f"{self.engine.engine} inspect: {error.message}", reason="engine_failed") from error
        return containers[0] if containers else None

    def _remove(self, transport: Transport, place: Place) -> tuple[str, ...]:
        """Remove the container by force, then look for its label: the engine's answer alone is no proof."""
        done = self._run(transport, "rm", "--force", "--volumes", self.name(place))
        left = self._labelled(transport, f"{run_words.LABEL}.run={self.name(place)}")
        if left and done.exit_code == 0:  # another removal may have been under way
            self._run(transport, "rm", "--force", "--volumes", *left)
            left = self._labelled(transport, f"{run_words.LABEL}.run={self.name(place)}")
        return left

    def _labelled(self, transport: Transport, label: str) -> tuple[str, ...]:
        done = self._run(transport, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}")
        if done.exit_code != 0:
            raise faults.refusal(done)
        lines = done.stdout.decode("ascii", "replace").split()
        return tuple(line for line in lines if re.fullmatch("[0-9a-f]{12,64}", line))

    def _last_words(self, place: Place, container: replies.Container | None, said: str) -> str:
        """What only the engine knows of an end: killed for its memory limit, or nothing there to run."""
        if container is None:
            return ""
        if not said and _state_of(container) == "ended" and _reason_of(container) == "not_started":
            return f"\nthe image {self.spec.image} has no /bin/sh that runs\n"
        limit = run_words.memory_limit(self.job(place, {}, 1.0))
        which = f"its memory limit of {limit // 2**20} MiB" if limit else "the memory that its machine has"
        if not container.state.oom_killed:
            # podman with control groups of version 1 does not learn why.
            killed = container.state.exit_code == 137 and _reason_of(container) is None
            return f"\nit was killed by SIGKILL, as the kernel does at {which}\n" if killed else ""
        what = "the whole container" if _reason_of(container) == "memory" else "a process in the container"
        return f"\nthe kernel killed {what}: it had reached {which}\n"


def _disk_words(place: Place, reading: shell.Reading) -> str:
    """A line that says so where the disk is full: the command could not even write that down."""
    free = reading.words.get("free", "")
    if not free.isdigit() or int(free) >= FULL_KIB:
        return ""
    return f"\nNo space left on device: the file system of {place.folder} has {free} KiB free\n"


def _state_of(container: replies.Container | None) -> Literal["running", "ended", "lost"]:
    if container is None:
        return "lost"
    return "ended" if container.state.status in ("exited", "stopped", "dead") else "running"


def _reason_of(container: replies.Container) -> str | None:
    """Why it did not end by itself; None where it did."""
    code, deadline = container.state.exit_code, container.labels.get(f"{run_words.LABEL}.deadline", "")
    if code in (126, 127):
        return "not_started"
    if code == 137 and container.state.oom_killed:
        return "memory"
    ran = container.seconds
    overran = ran is not None and deadline.isdigit() and ran >= int(deadline)
    return "deadline" if code == 124 or (code == 137 and overran) else None


def _abandoned(container: replies.Container, now: int) -> bool:
    """True for a container that nobody can be waiting for, by the host's own clock."""
    state = container.state
    deadline = container.labels.get(f"{run_words.LABEL}.deadline", "")
    started, finished, created = (replies.moment(t) for t in (state.started_at, state.finished_at, container.created))
    if _state_of(container) == "ended":
        return finished is not None and now - finished > KEEP_HOURS * 3600
    if started is None:
        return created is not None and now - created > NEVER_STARTED
    return deadline.isdigit() and now - started > int(deadline) + OVERDUE
