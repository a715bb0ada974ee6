"""`atlas demo`, whole and interrupted: it tells the truth by its exit code, and nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.fleet import find_sshd
from harness.records import Report
from tests import stand_ins

pytestmark = [pytest.mark.sshd, pytest.mark.timeout(170)]
ROOT = Path(__file__).resolve().parents[2]

# Stands in for ssh-keygen until the last machine: there it holds up the building of the lab.
SLOW_KEYGEN = """#!/bin/sh
for word; do
    case "$word" in */down/*) echo $$ > {folder}/holding; exec sleep 100 >&- 2>&-;; esac
done
exec {real} "$@"
"""


@dataclass
class Demo:
    """A demonstration that runs, and the only folder in which it can leave temporary files."""

    process: subprocess.Popen[str]
    folder: Path

    def left(self) -> list[str]:
        """Files in that folder, and processes that name it in their command line or environment."""
        listing = subprocess.run(["ps", "-A", "-ww", "-o", "stat=,args="], capture_output=True, text=True).stdout
        lines = [line for line in listing.splitlines() if f"{self.folder}/atlas-demo-" in line and line[0] != "Z"]
        files = [str(path) for path in self.folder.rglob("*")]
        return [*files, *lines, *map(str, stand_ins.processes_in([self.folder]))]

    def end(self) -> int:
        self.process.communicate(timeout=160)
        return self.process.returncode


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    folder = tmp_path / "t"
    folder.mkdir()
    begun: list[Demo] = []

    def begin(**environment: str) -> Demo:
        argv = [sys.executable, "-m", "harness", "demo", "--reports", str(tmp_path / "reports")]
        process = subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(folder), **environment},
        )  # fmt: skip
        begun.append(Demo(process, folder))
        return begun[-1]

    yield begin
    for demo in begun:
        demo.process.kill()
        demo.process.communicate(timeout=30)
    stand_ins.kill_in([folder])
    if (tmp_path / "holding").exists():
        subprocess.run(["kill", "-9", (tmp_path / "holding").read_text().strip()], stderr=subprocess.DEVNULL)


@pytest.fixture
def building(start: Callable[..., Demo], tmp_path: Path) -> Demo:
    """A demonstration whose lab has four machines and waits for the fifth."""
    programs, real = tmp_path / "programs", shutil.which("ssh-keygen")
    programs.mkdir()
    (programs / "ssh-keygen").write_text(SLOW_KEYGEN.format(folder=tmp_path, real=real))
    (programs / "ssh-keygen").chmod(0o755)
    demo = start(PATH=f"{programs}:{os.environ['PATH']}")
    wait_until(lambda: (tmp_path / "holding").exists() or demo.process.poll() is not None)
    assert [line for line in demo.left() if "sshd -D" in line], "no machine stands yet"
    return demo


def wait_until(done: Callable[[], bool]) -> None:
    """The test's own limit ends what never comes."""
    while not done():
        time.sleep(0.05)


@pytest.mark.torch
def test_it_ends_as_it_must_and_nothing_stays(start: Callable[..., Demo], tmp_path: Path) -> None:
    demo = start()
    out, err = demo.process.communicate(timeout=160)
    assert demo.process.returncode == 0, err
    report = Report.model_validate_json((tmp_path / "reports/latest/report.json").read_bytes())
    assert report.title == "2 of 5 hosts answered; 2 unreachable, 1 blocked."
    assert "a good run has two hosts that answer and three honest rows" in err
    assert "report.html" in out
    assert demo.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_stopped_while_the_lab_is_built(building: Demo, number: signal.Signals) -> None:
    building.process.send_signal(number)
    assert building.end() == 128 + number
    assert building.left() == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, where a program can ask to die with its parent")
def test_killed_while_the_lab_is_built_no_server_stays(building: Demo) -> None:
    building.process.kill()
    building.end()
    wait_until(lambda: not [line for line in building.left() if "sshd -D" in line])


def test_one_interrupt_ends_the_probes_and_is_no_success(start: Callable[..., Demo]) -> None:
    demo = start()
    wait_until(lambda: bool(stand_ins.processes_in([demo.folder])))
    demo.process.send_signal(signal.SIGTERM)
    assert demo.end() == 1
    assert demo.left() == []


def test_a_second_interrupt_takes_the_machines_along(start: Callable[..., Demo]) -> None:
    demo = start()
    wait_until(lambda: bool(stand_ins.processes_in([demo.folder])))
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.stderr is not None
    while "once more to stop at once" not in (line := demo.process.stderr.readline()):
        assert line, "it ended before it said so"
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 130
    assert demo.left() == []
