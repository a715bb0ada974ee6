"""The pool: hosts side by side, the targets of one host one after another, nothing lost."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from harness import runner, wire
from harness.events import Event
from harness.launchers.direct import State
from harness.records.inventory import Host, Target
from harness.records.work import Job, Outcome
from tests import stand_ins

# A python that answers one of the keeper's acts itself.
LIAR = """#!{python}
import os, sys
if sys.argv[2:3] and sys.argv[2].endswith("keeper.py") and sys.argv[3] == {act!r}:
    print({reply!r})
else:
    os.execv({honest!r}, [{honest!r}, *sys.argv[1:]])
"""


def jobs_of(name: str, *targets: str) -> list[Job]:
    host = Host(name=name, transport="local", timeout=1.0, targets=tuple(Target(name=word) for word in targets))
    return [Job(host=host, target=target) for target in host.targets]


class Stage:
    """Stands in for one job's session: says when it runs, and waits where it is told to."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        self.hosts_at_once = 0
        self.lock = threading.Lock()
        self.together = threading.Barrier(2)
        self.stuck = threading.Event()

    def __call__(self, job: Job, *_: object) -> tuple[Outcome, bytes | None]:
        name = job.host.name
        with self.lock:
            self.running[name] = self.running.get(name, 0) + 1
            self.peak[name] = max(self.peak.get(name, 0), self.running[name])
        if name == "stuck":
            self.stuck.wait(30)
        elif job.target.name == "one":
            self.together.wait(30)  # both hosts must be here at the same time
        with self.lock:
            self.running[name] -= 1
        return Outcome(host=name, target=job.target.name, status="answered"), b""


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(runner, "_guarded", stage)
    return stage


def run(jobs: list[Job]) -> tuple[list[Outcome], list[str], list[Event]]:
    kept: list[str] = []
    events: list[Event] = []
    outcomes = runner.run(
        jobs,
        lambda outcome, _: kept.append(f"{outcome.host}/{outcome.target}"),
        events.append,
        workers=4,
        cancelled=threading.Event(),
    )
    return outcomes, kept, events


def test_hosts_run_together_and_the_targets_of_one_host_in_turn(stage: Stage) -> None:
    jobs = [*jobs_of("a", "one", "two", "three"), *jobs_of("b", "one", "two")]
    outcomes, kept, events = run(jobs)
    assert [f"{o.host}/{o.target}" for o in outcomes] == [job.id for job in jobs]
    assert stage.peak == {"a": 1, "b": 1}
    assert sorted(kept) == sorted(job.id for job in jobs)
    assert [event.job for event in events if event.step == "ended"] == kept


def test_a_worker_that_does_not_come_back_costs_its_host_only(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "OVERRUN", -0.9)  # 0.1 s after it began
    stage.together = threading.Barrier(1)
    try:
        outcomes, kept, _ = run([*jobs_of("stuck", "native", "later"), *jobs_of("fine", "one")])
    finally:
        stage.stuck.set()
    assert [(o.host, o.target, o.status, o.reason) for o in outcomes] == [
        ("stuck", "native", "timeout", "given_up"),
        ("stuck", "later", "not_run", "given_up"),
        ("fine", "one", "answered", None),
    ]
    assert sorted(kept) == ["fine/one", "stuck/later", "stuck/native"]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), BrokenPipeError(), MemoryError("host's words")],
                         ids=lambda error: type(error).__name__)  # fmt: skip
def test_a_worker_that_dies_leaves_an_outcome_in_our_own_words(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def dying(*_: object) -> object:
        raise error

    monkeypatch.setattr(runner, "_guarded", dying)
    outcomes, kept, _ = run([*jobs_of("a", "one", "two"), *jobs_of("b", "one")])
    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [("failed", "harness")] * 3
    assert outcomes[0].message == f"the harness failed ({type(error).__name__}) and cannot say how this target ended"
    assert sorted(kept) == ["a/one", "a/two", "b/one"]


@pytest.mark.parametrize("error", [SystemExit(1), BrokenPipeError(), OSError(5, "the terminal is gone"), KeyError("x")],
                         ids=lambda error: type(error).__name__)  # fmt: skip
def test_a_listener_that_fails_costs_only_what_it_shows(stage: Stage, error: BaseException) -> None:
    def listener(_: Event) -> None:
        raise error

    kept: list[str] = []
    outcomes = runner.run([*jobs_of("a", "one"), *jobs_of("b", "one")], lambda outcome, _: kept.append(outcome.host),
                          listener, workers=2, cancelled=threading.Event())  # fmt: skip
    assert [outcome.status for outcome in outcomes] == ["answered", "answered"]
    assert sorted(kept) == ["a", "b"]


def test_a_bug_in_a_session_is_its_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("an odd thing")

    monkeypatch.setattr(runner, "connect", broken)
    (outcome,), _, _ = run(jobs_of("a", "native"))
    assert (outcome.status, outcome.reason) == ("failed", "harness")
    assert "RuntimeError: an odd thing" in (outcome.message or "")


# ------------------------------------------------------------------ what a host makes of its keeper


def probe(folder: Path, program: str = stand_ins.ANSWER, data: bytes | None = None, *, act: str = "",
          reply: object = None) -> tuple[Outcome, list[Event]]:  # fmt: skip
    """Probe this machine, with a python that plays the payload and may answer one act of the keeper itself."""
    python = stand_ins.python(folder, "honest", program, data)
    if act:
        liar, said = folder / "liar", f"ATLAS-KEEPER {json.dumps(reply)}"
        liar.write_text(LIAR.format(python=sys.executable, act=act, reply=said, honest=python))
        liar.chmod(0o755)
        python = str(liar)
    (folder / "work").mkdir()
    host = Host(name="here", transport="local", timeout=60.0, python=python, workdir=str(folder / "work"))
    try:
        (outcome,), _, events = run([Job(host=host, target=Target())])
    finally:
        stand_ins.kill_in([folder / "work"])
    return outcome, events


POLL = {"state": "ended", "offset": 0, "progress": "", "result_bytes": 0}


@pytest.mark.parametrize(
    ("act", "reply"),
    [
        pytest.param("clean", {"removed": False, "why": "x" * 19_999}, id="clean-long"),
        pytest.param("clean", {"removed": False, "why": "x" * 200_000}, id="clean-longer"),
        pytest.param("clean", {"removed": False, "why": "\ud800 \x1b[2J"}, id="clean-odd"),
        pytest.param("clean", [], id="clean-list"),
        pytest.param("clean", None, id="clean-null"),
        pytest.param("cancel", {"left": [2**40] * 9999}, id="cancel-many"),
        pytest.param("cancel", {"left": "all of them"}, id="cancel-text"),
        pytest.param("start", {"error": "y" * 19_999, "detail": "z" * 19_999}, id="start-long"),
        pytest.param("start", {"error": ["y"]}, id="start-list"),
        pytest.param("sweep", {}, id="sweep"),
        pytest.param("poll", {}, id="poll-nothing"),
        pytest.param("poll", {**POLL, "state": "splendid"}, id="poll-state"),
        pytest.param("poll", {**POLL, "offset": -1}, id="poll-back"),
        pytest.param("poll", {**POLL, "offset": 2**70}, id="poll-huge"),
        pytest.param("poll", {**POLL, "offset": 2**40}, id="poll-ahead"),
        pytest.param("poll", {**POLL, "progress": "a" * 100_000}, id="poll-progress"),
        pytest.param("poll", {**POLL, "exit": [1]}, id="poll-exit"),
        pytest.param("poll", {**POLL, "exit": {"code": 1, "reason": "x" * 5000}}, id="poll-reason"),
        pytest.param("poll", {**POLL, "stderr": "last words " * 1800}, id="poll-stderr"),
        pytest.param("poll", {**POLL, "result_bytes": 7, "result_sha256": "../" * 20}, id="poll-hash"),
    ],
)
def test_no_reply_of_a_host_hangs_the_run_or_breaks_a_record(tmp_path: Path, act: str, reply: object) -> None:
    outcome, _ = probe(tmp_path, act=act, reply=reply)
    assert outcome.reason != "harness", outcome.message
    texts = [outcome.message or "", outcome.left_behind or "", outcome.hint or ""]
    assert max(map(len, texts)) <= runner.TEXT_LIMIT
    assert "\x1b" not in "".join(texts)
    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome
    if act in ("clean", "cancel"):
        assert outcome.status == "answered"
        assert outcome.left_behind


def test_progress_goes_neither_back_nor_ahead(tmp_path: Path) -> None:
    outcome, _ = probe(tmp_path, act="poll", reply={**POLL, "offset": 2**40})
    assert outcome.status == "failed"
    assert outcome.message == f"asked for its progress from byte 0 on, the host says that it is at {2**40}"


def test_a_flood_of_progress_is_cut_and_the_result_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LINES_A_HOST", 300)
    program = (
        f"import time\nfor _ in range(4):\n    print('cell c\\n' * 4000, flush=True); time.sleep(1)\n{stand_ins.ANSWER}"
    )
    outcome, events = probe(tmp_path, program)
    assert outcome.status == "answered"
    assert sum(event.step == "cell" for event in events) == 300
    assert [event.text for event in events if event.step == "noted"] == [
        "more lines of progress came; they are left out"
    ]


# ------------------------------------------------------------------ what a result says


def changed(*changes: tuple[str, str], drop: str = "") -> bytes:
    """A whole result with some words changed, without the records of one name."""
    text = stand_ins.result().decode()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    kept = [line for line in text.splitlines(keepends=True) if json.loads(line)["record"] != drop]
    return "".join(kept).encode()


REFUSED = b'{"record": "cell", "device": "cpu", "function": "sort", "variant": "f32", "status": "splendid"}\n'
LAST = stand_ins.result().splitlines(keepends=True)[-1]


@pytest.mark.parametrize(
    ("data", "status", "reason", "says"),
    [
        (stand_ins.result(), "answered", None, ""),
        (changed().replace(LAST, REFUSED + LAST), "partial", "incomplete", "line 6: CellRecord: status"),
        (changed(('"cells": 1', '"cells": 2')), "partial", "incomplete", "the end record counts 2 cells; 1 came"),
        (changed(drop="device"), "partial", "incomplete", "cells of cpu came, and no device record"),
        (changed(('"backend": "cpu"', '"backend": "cuda"')), "partial", "incomplete", "cannot be of backend cuda"),
        (changed(drop="artifact"), "partial", "incomplete", "never came"),
        (changed(drop="run"), "partial", "incomplete", "no run record"),
        (changed(drop="cell"), "failed", "incomplete", "the end record counts 1 cells; 0 came"),
        (changed(('"cells": 1', '"cells": 0'), drop="cell"), "failed", "no_cells", "holds no cell"),
        (changed(drop="end"), "partial", "cut_short", "no end record"),
        (stand_ins.result().splitlines(keepends=True)[0], "failed", "cut_short", "no end record"),
    ],
    ids=["whole", "refused cell", "fewer cells", "no device", "other backend", "no code", "no run", "no cell",
         "nothing at all", "no end", "run alone"],
)  # fmt: skip
def test_only_a_whole_result_is_an_answer(
    tmp_path: Path, data: bytes, status: str, reason: str | None, says: str
) -> None:
    outcome, _ = probe(tmp_path, data=data)
    assert (outcome.status, outcome.reason) == (status, reason), outcome.message
    assert says in (outcome.message or "")


def ended(**fields: object) -> State:
    return State(**{"state": "ended", "offset": 0, "progress": "", "result_bytes": 0, "result_sha256": None,
                    "exit_code": 0, "exit_reason": None, "survivors": (), "stderr": "", **fields})  # type: ignore[arg-type]  # fmt: skip


KILLED = "the kernel killed a process of this probe for memory"


@pytest.mark.parametrize(
    ("kills", "data", "message"),
    [
        (None, True, None),
        (0, True, None),
        (1, True, KILLED),
        (3, True, "the kernel killed 3 processes of this probe for memory"),
        (1, False, f"the payload wrote no result: it ended with code -9; {KILLED}"),
    ],
)  # fmt: skip
def test_what_the_kernel_killed_for_memory_is_said(kills: int | None, data: bool, message: str | None) -> None:
    (job,) = jobs_of("a", "native")
    session = runner._Session(job, lambda _: None, threading.Event(), None)
    session.data = stand_ins.result() if data else None
    outcome = session._judge(ended(oom_kills=kills, exit_code=0 if data else -9))
    assert (outcome.status, outcome.message) == ("answered" if data else "failed", message)


def test_what_may_be_fetched_may_be_read() -> None:
    limit = wire.DEFAULT_LIMITS.total
    assert limit == runner.RESULT_LIMIT
