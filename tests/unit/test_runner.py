"""The pool: hosts side by side, the targets of one host one after another, nothing lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness import runner
from harness.events import Event
from harness.records.inventory import Host, Target
from harness.records.work import Job, Outcome


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


def test_a_bug_in_a_session_is_its_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("an odd thing")

    monkeypatch.setattr(runner, "connect", broken)
    (outcome,), _, _ = run(jobs_of("a", "native"))
    assert (outcome.status, outcome.reason) == ("failed", "harness")
    assert "RuntimeError: an odd thing" in (outcome.message or "")
