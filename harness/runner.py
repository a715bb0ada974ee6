"""Runs jobs side by side: a bounded pool, a deadline a host, nothing lost.

A job is one worker thread from connect to clean.  When the connection drops, what may be done twice
is done again over a new one (poll, fetch, cancel, clean); a probe that was started is never started
again.  Each result is stored by the `keep` callback as soon as its host ends.  A worker that overruns
every deadline of its own (a library that waits without limit) is given up, its host's row says so,
and the others go on.  Whatever a host says and whatever a display does, each job gets its outcome.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

from harness import wire
from harness.dialects.visible import visible
from harness.errors import (
    AtlasError,
    AuthError,
    Blocked,
    Cancelled,
    DeadlineExceeded,
    HostError,
    Unreachable,
    WireError,
)
from harness.events import Event, Listener
from harness.images.catalog import reference_of
from harness.launchers import containers, direct
from harness.launchers.base import RESULT, Launcher, Place, State
from harness.launchers.container import ContainerLauncher
from harness.records.containers import ContainerFacts, ContainerSpec
from harness.records.payload import Result
from harness.records.work import Job, Outcome
from harness.store import now
from harness.transports import connect
from harness.transports.base import Transport

PAYLOAD = Path(__file__).resolve().parent.parent / "probe_payload.py"
RESULT_LIMIT = wire.DEFAULT_LIMITS.total  # bytes of one target's result: what is fetched can be read
TEXT_LIMIT = 4000  # characters of a text in an outcome; its record takes 20,000
# Of a host that writes progress without end no more is shown and logged than this.
LINES_A_POLL = 200
LINES_A_HOST = 20_000
POLL_SECONDS = (0.2, 2.0)  # first and longest pause between polls
RECONNECTS = 3
OVERRUN = 180.0  # seconds beyond a host's deadline after which its worker is given up
# What the payload's own clock is set short of the host's, so that its last record is written.
MARGIN = 15.0

T = TypeVar("T")
Keep = Callable[[Outcome, bytes | None], None]
Stop = Literal["interrupted", "deadline"]


def run(jobs: Sequence[Job], keep: Keep, emit: Listener, *, workers: int, cancelled: threading.Event,
        ssh_config: Path | None = None) -> list[Outcome]:  # fmt: skip
    """Run every job; returns their outcomes in the order of the jobs.  `keep` is called from one thread.

    Hosts run side by side, the targets of one host one after another.  A listener that fails costs
    what it would have shown, nothing else.
    """
    emit = _harmless(emit)
    waiting: queue.Queue[list[Job]] = queue.Queue()
    ended: queue.Queue[tuple[Job, Outcome, bytes | None]] = queue.Queue()
    running: dict[str, float] = {}
    by_host: dict[str, list[Job]] = {}
    for job in jobs:
        by_host.setdefault(job.host.name, []).append(job)
        emit(Event(job.id, "queued"))
    for of_host in by_host.values():
        waiting.put(of_host)

    def work() -> None:
        while True:
            try:
                of_host = waiting.get_nowait()
            except queue.Empty:
                return
            for job in of_host:
                running[job.id] = time.monotonic() + job.host.timeout + OVERRUN
                ended.put((job, *_certain(job, emit, cancelled, ssh_config)))

    def start_worker() -> None:
        threading.Thread(target=work, daemon=True).start()

    for _ in range(min(workers, len(by_host))):
        start_worker()
    outcomes: dict[str, Outcome] = {}
    while len(outcomes) < len(jobs):
        try:
            job, outcome, data = ended.get(timeout=0.5)
        except queue.Empty:
            late = {i for i, end in list(running.items()) if time.monotonic() > end and i not in outcomes}
            for stuck in [of_host for of_host in by_host.values() if any(job.id in late for job in of_host)]:
                for job in [job for job in stuck if job.id not in outcomes]:
                    outcomes[job.id] = _given_up(job, job.id in late)
                    _finish(outcomes[job.id], None, keep, emit, job.id)
                start_worker()
            continue
        if job.id not in outcomes:
            outcomes[job.id] = outcome
            _finish(outcome, data, keep, emit, job.id)
    return [outcomes[job.id] for job in jobs]


def _finish(outcome: Outcome, data: bytes | None, keep: Keep, emit: Listener, job_id: str) -> None:
    keep(outcome, data)
    emit(Event(job_id, "ended", outcome.message or "", outcome))


def _harmless(emit: Listener) -> Listener:
    """The listener without its failures: on a terminal that is gone it raises OSError, or rich's SystemExit."""

    def listener(event: Event) -> None:
        with contextlib.suppress(Exception, SystemExit):
            emit(event)

    return listener


def _given_up(job: Job, began: bool) -> Outcome:
    message = f"its host's worker did not come back {OVERRUN:.0f} s after the deadline of {job.host.timeout:.0f} s"
    return Outcome(
        host=job.host.name,
        target=job.target.name,
        status="timeout" if began else "not_run",
        reason="given_up",
        message=message,
        ended=now(),
    )


def _certain(
    job: Job, emit: Listener, cancelled: threading.Event, ssh_config: Path | None
) -> tuple[Outcome, bytes | None]:
    """What `_guarded` gives, or an outcome in our own words alone: the run would wait for a worker that died."""
    try:
        return _guarded(job, emit, cancelled, ssh_config)
    except BaseException as error:  # this thread's last frame: nobody above would hear of it
        message = f"the harness failed ({type(error).__name__}) and cannot say how this target ended"
        return Outcome(host=job.host.name, target=job.target.name, status="failed", reason="harness",
                       message=message, hint="please report this", ended=now()), None  # fmt: skip


def _guarded(
    job: Job, emit: Listener, cancelled: threading.Event, ssh_config: Path | None
) -> tuple[Outcome, bytes | None]:
    """One job; whatever goes wrong becomes its outcome."""
    session = _Session(job, emit, cancelled, ssh_config)
    try:
        return session.run()
    except HostError as error:
        return session.outcome(_status_of(error), error.reason, error.message, error.hint), session.data
    except AtlasError as error:
        return session.outcome("failed", "harness", error.message, error.hint), session.data
    except Exception as error:  # our bug costs this row, not the run
        message = f"the harness failed: {type(error).__name__}: {error}"
        return session.outcome("failed", "harness", message, "please report this"), session.data


def _status_of(error: HostError) -> str:
    for kind, status in ((DeadlineExceeded, "timeout"), (Cancelled, "cancelled"), (Unreachable, "unreachable"),
                         (AuthError, "unreachable"), (Blocked, "blocked")):  # fmt: skip
        if isinstance(error, kind):
            return status
    return "failed"


class _Session:
    """One job on its host, in its own thread."""

    def __init__(self, job: Job, emit: Listener, cancelled: threading.Event, ssh_config: Path | None) -> None:
        self.job, self.emit, self.cancelled, self.ssh_config = job, emit, cancelled, ssh_config
        self.started, self.deadline = now(), time.monotonic() + job.host.timeout
        self.data: bytes | None = None
        self.argv: tuple[str, ...] = ()
        self.payload_sha256: str | None = None
        self.left_behind: str | None = None
        self.stopped: Stop | None = None
        self.launcher: Launcher = direct
        self.container: ContainerFacts | None = None
        self.lines = 0
        self.is_cut = False

    def say(self, step: str, text: str = "") -> None:
        self.emit(Event(self.job.id, step, text))  # type: ignore[arg-type]

    def outcome(
        self, status: str, reason: str | None = None, message: str | None = None, hint: str | None = None
    ) -> Outcome:
        """How this job ended.  Any text may be a stranger's: it is made to fit the record here."""
        words = message.removeprefix(f"{self.job.host.name}: ") if message else None
        return Outcome.model_validate({
            "host": self.job.host.name, "target": self.job.target.name, "status": status,
            "reason": _fitting(reason, 100), "message": _fitting(words), "hint": _fitting(hint),
            "started": self.started, "ended": now(),
            "result_sha256": sha256(self.data).hexdigest() if self.data is not None else None,
            "payload_sha256": self.payload_sha256, "argv": tuple(_fitting(word) for word in self.argv),
            "left_behind": _fitting(self.left_behind), "container": self.container,
        })  # fmt: skip

    def run(self) -> tuple[Outcome, bytes | None]:
        """Connect, send, start, follow, fetch, clean."""
        self.say("connecting")
        transport = connect(self.job.host, ssh_config=self.ssh_config)
        try:
            transport.open()
            self._check()
            self.say("sending")
            self.launcher = self._launcher(transport)
            place = self.launcher.prepare(transport, self._python(), self.job.host.workdir)
            try:
                state = self._follow(transport, place)
            finally:
                self._leave(transport, place)
            return self._judge(state), self.data
        finally:
            transport.close()

    def _launcher(self, transport: Transport) -> Launcher:
        """Who starts the payload: the keeper, or the engine of a containerised target."""
        target = self.job.target
        if target.runtime == "bare" or target.backend is None:
            return direct
        image = target.image or reference_of(target.backend)
        spec = ContainerSpec(image=image, backend=target.backend, devices=target.gpus)
        return containers.find(transport, target.runtime, spec)

    def _follow(self, transport: Transport, place: Place) -> State:
        """Start the payload and tail it to its end; ends it at the deadline or when the run is cancelled."""
        launcher, environment = self.launcher, {"LC_ALL": "C.UTF-8"}
        self.payload_sha256 = launcher.push(transport, place, PAYLOAD)
        argv = self.argv = self._payload_argv(place)
        deadline = max(self.deadline - time.monotonic() - MARGIN / 2, 1)
        if isinstance(launcher, ContainerLauncher):
            self.argv = launcher.wrap(place, argv, environment, deadline)
            self.container = launcher.container_facts(place, self.argv)
        launcher.start(transport, place, argv, environment, deadline)
        self.say("running")
        state, pause = self._poll(transport, place, 0), POLL_SECONDS[0]
        while state.state == "running":
            if self.cancelled.is_set() or time.monotonic() > self.deadline:
                self.stopped = "interrupted" if self.cancelled.is_set() else "deadline"
                self._insist(transport, lambda: launcher.cancel(transport, place))
                state = self._poll(transport, place, state.offset)
                break
            self.cancelled.wait(pause)
            pause = min(pause * 1.3, POLL_SECONDS[1])
            state = self._poll(transport, place, state.offset)
        if state.result_bytes:
            self.say("fetching")
            data = self._insist(transport, lambda: transport.get(place.result, limit=RESULT_LIMIT))
            arrived = sha256(data).hexdigest() if state.result_sha256 else len(data)  # a host may have no way to hash
            if arrived != (state.result_sha256 or state.result_bytes):
                raise HostError(
                    "the result arrived changed: its sha256 is not the one that the host computed", reason="hash"
                )
            self.data = data
        return state

    def _payload_argv(self, place: Place) -> tuple[str, ...]:
        selection, host = self.job.selection, self.job.host
        left = max(self.deadline - time.monotonic() - MARGIN, 1.0)
        words = [place.python, "-B", f"{place.seen}/probe_payload.py", "--out", f"{place.seen}/{RESULT}",
                 "--timeout", f"{selection.cell_timeout or host.cell_timeout:g}", "--deadline", f"{left:.0f}",
                 "--workdir", f"{place.seen}/work"]  # fmt: skip
        for device in selection.devices:
            words += ["--device", device]
        for function in selection.functions:
            words += ["--function", function]
        if selection.jobs:
            words += ["--jobs", str(selection.jobs)]
        return tuple(words)

    def _poll(self, transport: Transport, place: Place, offset: int) -> State:
        state = self._insist(transport, lambda: self.launcher.poll(transport, place, offset))
        self._hear(state.progress.splitlines())
        return state

    def _hear(self, lines: list[str]) -> None:
        """Pass progress on as far as there is room for it; then say, once, that there is more."""
        room = min(LINES_A_POLL, LINES_A_HOST - self.lines)
        for line in lines[:room]:
            self.say("cell" if line.startswith("cell ") else "running", line[:300])
        self.lines += min(room, len(lines))
        if len(lines) > room and not self.is_cut:
            self.is_cut = True
            self.say("noted", "more lines of progress came; they are left out")

    def _insist(self, transport: Transport, act: Callable[[], T]) -> T:
        """Do an act that may be done twice, over a new connection if the old one dropped; the payload goes on."""
        for attempt in range(RECONNECTS + 1):
            try:
                if attempt:
                    self.say("retrying", f"connection lost, attempt {attempt} of {RECONNECTS}")
                    transport.close()
                    transport.open()
                return act()
            except Unreachable:
                over = self.cancelled.wait(2.0**attempt) or time.monotonic() > self.deadline
                # One new connection is owed in any case: what runs there has to be ended.
                if attempt == RECONNECTS or (over and attempt):
                    raise
        raise AssertionError("unreachable")

    def _leave(self, transport: Transport, place: Place) -> None:
        """Nothing of ours stays: the command is ended, the directory removed; what could not be is said."""
        try:
            if not self.argv:  # the keeper may not have arrived
                self.left_behind = self._insist(transport, lambda: self.launcher.discard(transport, place))
                return
            survivors = self._insist(transport, lambda: self.launcher.cancel(transport, place))
            kept = self._insist(transport, lambda: self.launcher.clean(transport, place))
            self.left_behind = f"processes {list(survivors)}" if survivors else kept
        except HostError as error:
            self.left_behind = f"{place.folder} ({error.message}); it goes {direct.KEEP_HOURS:.0f} h after its end"

    def _python(self) -> str:
        if self.job.target.runtime != "bare":
            return self.job.target.python or "python3"  # the image's
        mine = sys.executable if self.job.host.transport == "local" else "python3"
        return self.job.target.python or self.job.host.python or mine

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled("the run was interrupted before this host's turn")
        if time.monotonic() > self.deadline:
            raise DeadlineExceeded(f"connecting used up the deadline of {self.job.host.timeout:.0f} s")

    def _judge(self, state: State) -> Outcome:
        """How it went: its end and its result, and what the kernel did meanwhile."""
        outcome = self._judge_end(state)
        if not state.oom_kills:
            return outcome
        what = "a process" if state.oom_kills == 1 else f"{state.oom_kills} processes"
        said = f"the kernel killed {what} of this probe for memory"
        return outcome.model_copy(update={"message": f"{outcome.message}; {said}" if outcome.message else said})

    def _judge_end(self, state: State) -> Outcome:
        ended_by_itself = state.state == "ended" and state.exit_reason is None
        if self.stopped == "interrupted" and not ended_by_itself:
            return self.outcome("cancelled", "interrupted", "the run was interrupted; cells that had ended are kept")
        if state.exit_reason == "deadline" or (self.stopped == "deadline" and not ended_by_itself):
            return self._overdue()
        said = state.stderr.strip().splitlines()
        if state.exit_reason in ("memory", "not_started"):  # the engine's word; cells that had ended are kept
            return self.outcome("failed", state.exit_reason, said[-1] if said else None)
        if self.data is None:
            how = _killed() if state.state == "lost" else f"it ended with code {state.exit_code}"
            return self.outcome("failed", "killed" if state.state == "lost" else "no_result",
                                f"the payload wrote no result: {how}{': ' + said[-1] if said else ''}")  # fmt: skip
        try:
            return self._judge_result(wire.parse(self.data), state)
        except WireError as error:
            return self.outcome("failed", "result", error.message)

    def _overdue(self) -> Outcome:
        message = f"not done after {self.job.host.timeout:.0f} s; cells that had ended are kept"
        return self.outcome("timeout", "deadline", message, "raise `timeout:` of this host in hosts.yaml")

    def _judge_result(self, result: Result, state: State) -> Outcome:
        if result.end is None:
            how = _killed() if state.state == "lost" else f"the payload ended with code {state.exit_code}"
            return self.outcome(wire.part(result), "cut_short", f"the result has no end record: {how}")
        if result.end.reason == "deadline":
            return self._overdue()
        if result.end.reason not in (None, "no_device"):
            return self.outcome(wire.part(result), result.end.reason, result.end.message)
        if lack := wire.lack(result):
            return self.outcome(wire.part(result), "incomplete", lack)
        if result.end.reason == "no_device" and isinstance(self.launcher, ContainerLauncher):
            raise self.launcher.device_absent()
        if result.end.reason == "no_device":
            return self.outcome("skipped", "no_device", f"it has none of: {', '.join(self.job.selection.devices)}")
        if not result.cells:
            return self.outcome("failed", "no_cells", "the result holds no cell")
        blocked = [cell for cell in result.cells if cell.status == "blocked"]
        if blocked and len(blocked) == len(result.cells):
            return self.outcome("blocked", blocked[0].reason, blocked[0].message, blocked[0].hint)
        return self.outcome("answered")


def _fitting(text: str | None, limit: int = TEXT_LIMIT) -> str | None:
    """A text that any record and any file takes: not too long, no lone surrogate, no escape sequence."""
    return None if text is None else visible(text[:limit])[:limit]


def _killed() -> str:
    return (
        "the probe and its keeper were killed from outside, as the kernel does with a whole cgroup that is "
        "out of memory (`journalctl -k` on the host tells)"
    )
