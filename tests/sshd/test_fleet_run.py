"""Whole probes over real sshd: honest rows, nothing lost, nothing left, whatever happens in mid-run.

The good hosts compile with a real torch. Where the payload itself does not matter, a host's python
plays it (tests/stand_ins.py). Each host has a workdir of its own, so that what stays there is seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import store
from harness.fleet import Fleet, find_sshd
from harness.records import Outcome, Report
from tests import stand_ins

pytestmark = [pytest.mark.sshd, pytest.mark.timeout(170)]
ROOT = Path(__file__).resolve().parents[2]

# Waits for the file `go` beside the result's directory, then answers.
WAIT = """
import time
print("cell cpu matmul extern_only", flush=True)
while not Path({go!r}).exists():
    time.sleep(0.05)
Path(OUT).write_bytes(RESULT)
"""
# A python that changes the result after the keeper there has hashed it.
TAMPER = """#!{real}
import subprocess, sys
from pathlib import Path
done = subprocess.run([{python!r}, *sys.argv[1:]], capture_output=True)
if "poll" in sys.argv[1:4] and b'"ended"' in done.stdout:
    result = Path(sys.argv[4], "result.jsonl")
    result.write_bytes(result.read_bytes().replace(b"extern_only", b"generated  "))
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""


@dataclass
class Lab:
    """A fleet with its folder, and how to probe it as a person would."""

    folder: Path
    fleet: Fleet

    def add(self, name: str, **fields: object) -> None:
        """Start a machine with a workdir of its own."""
        work = self.work(name)
        work.mkdir()
        self.fleet.add(name, workdir=str(work), **fields)  # type: ignore[arg-type]
        self.fleet.write_inventory(self.folder / "hosts.yaml")

    def play(self, name: str, program: str) -> str:
        """A python that plays the payload for a host."""
        return stand_ins.python(self.folder, name, program)

    def work(self, name: str) -> Path:
        return self.folder / f"work-{name}"

    def processes(self, name: str) -> list[int]:
        """What was started for a run on a host and still runs."""
        return stand_ins.processes_in([self.work(name)])

    def atlas(self, *words: str, reports: str = "reports") -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "harness", words[0], "--reports", str(self.folder / reports)]
        if words[0] == "probe":
            argv += ["--hosts", str(self.folder / "hosts.yaml"), "--ssh-config", str(self.fleet.ssh_config)]
        return subprocess.Popen(
            [*argv, *words[1:]], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def outcomes(self, reports: str = "reports") -> dict[str, Outcome]:
        results = store.open_run(self.folder / reports).results()
        return {name.partition("/")[0]: outcome for name, (outcome, _) in results.items()}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    folder = tmp_path_factory.mktemp("lab")
    with Fleet(folder / "fleet") as fleet:
        yield Lab(folder, fleet)
    stand_ins.kill_in(folder.glob("work-*"))


def wait_until(done: Callable[[], bool]) -> None:
    """The test's own limit ends what never comes."""
    while not done():
        time.sleep(0.05)


def read_until(process: subprocess.Popen[str], *lines: str) -> None:
    """Read progress until each of these lines has come, by its beginning."""
    assert process.stderr is not None
    wanted = set(lines)
    while wanted:
        line = process.stderr.readline()
        assert line, f"it ended before it said {wanted}"
        wanted = {word for word in wanted if not line.startswith(word)}


# ------------------------------------------------------------------ six hosts


@dataclass
class Probed:
    """What a finished probe left."""

    code: int
    out: str
    err: str
    report: Report
    folder: Path
    log: list[str]


def probe(lab: Lab, *words: str, reports: str) -> Probed:
    process = lab.atlas("probe", *words, reports=reports)
    out, err = process.communicate(timeout=160)
    folder = lab.folder / reports / "latest"
    report = Report.model_validate_json((folder / "report.json").read_bytes())
    lines = (folder / "log.txt").read_text().splitlines()
    return Probed(process.returncode, out, err, report, folder, [line.partition(" ")[2] for line in lines])


SIX = ("good-1", "good-2", "down", "wrong-key", "no-torch", "silent")


@pytest.fixture(scope="module")
def six(lab: Lab) -> Probed:
    lab.add("good-1")
    lab.add("good-2")
    lab.add("down", state="down", connect_timeout=5.0)
    lab.add("wrong-key", known_hosts="wrong")
    lab.add("no-torch", torch=False)
    lab.add("silent", state="hang", connect_timeout=4.0)
    return probe(lab, *SIX, "--function", "matmul", reports="six")


def test_four_honest_rows_and_two_good_ones(six: Probed) -> None:
    said = {t.host: (t.outcome.status, t.outcome.reason) for t in six.report.targets}
    assert said == {
        "good-1": ("answered", None),
        "good-2": ("answered", None),
        "down": ("unreachable", "unreachable"),
        "wrong-key": ("unreachable", "host_key_changed"),
        "no-torch": ("blocked", "no_torch"),
        "silent": ("unreachable", "unreachable"),
    }
    assert six.code == 4, six.err


def test_the_good_ones_have_code_and_it_is_the_same(six: Probed) -> None:
    cells = {cell.host: cell for cell in six.report.cells if cell.host.startswith("good")}
    assert set(cells) == {"good-1", "good-2"}
    for cell in cells.values():
        assert (cell.cell.status, cell.cell.kind) == ("extern_only", "extern")
    assert cells["good-1"].normal == cells["good-2"].normal != ()


def test_each_bad_row_says_what_to_type(six: Probed) -> None:
    for target in six.report.targets:
        if not target.host.startswith("good"):
            assert target.outcome.message, target.host
            assert target.outcome.hint, target.host
            assert not target.outcome.message.startswith(target.host), "the row has the name already"


def test_each_bad_host_is_told_once(six: Probed) -> None:
    told = [finding for finding in six.report.findings if finding.group == "not_ready"]
    for host in SIX[2:]:
        assert [finding.sentence for finding in told if host in finding.hosts and finding.command], host
        assert sum(host in finding.hosts for finding in told) == 1, [finding.sentence for finding in told]
        assert f"{host}: " not in " ".join(finding.sentence for finding in told)


def test_every_host_stands_on_the_terminal(six: Probed) -> None:
    rows = {line.split()[0] for line in six.out.splitlines() if line.split()}
    assert set(SIX) <= rows
    for host in SIX:
        assert f"{host}/native connecting" in six.err.splitlines()


def test_the_run_is_whole(six: Probed) -> None:
    for name in ("run.json", "report.json", "report.md", "report.html", "log.txt"):
        assert (six.folder / name).stat().st_size > 0
    stored = {path.parent.name for path in six.folder.glob("hosts/*/native.jsonl")}
    assert stored == {"good-1", "good-2", "no-torch"}
    assert {path.parent.name for path in six.folder.glob("hosts/*/native.outcome.json")} == set(SIX)


def test_nothing_of_ours_stays(lab: Lab, six: Probed) -> None:
    for host in SIX:
        assert list(lab.work(host).iterdir()) == []
        assert lab.processes(host) == []
        target = next(target for target in six.report.targets if target.host == host)
        assert target.outcome.left_behind is None


# ------------------------------------------------------------------ hosts that misbehave later


@pytest.fixture(scope="module")
def later(lab: Lab) -> Probed:
    lab.add("quick", python=lab.play("quick", stand_ins.ANSWER))
    lab.add("stuck", python=lab.play("stuck", stand_ins.HANG), timeout=14.0)
    lab.add("mute", python=lab.play("mute", "import time; time.sleep(600)"), timeout=14.0)
    liar = lab.folder / "liar-python"
    liar.write_text(TAMPER.format(real=sys.executable, python=lab.play("honest", stand_ins.ANSWER)))
    liar.chmod(0o755)
    lab.add("liar", python=str(liar))
    lab.add("no-python", python="/no/such/python")
    lab.add("no-sftp", sshd_config=["Subsystem sftp /no/such/program"])
    return probe(lab, *LATER, reports="later")


LATER = ("quick", "stuck", "mute", "liar", "no-python", "no-sftp")


def outcome(probed: Probed, host: str) -> Outcome:
    return next(target.outcome for target in probed.report.targets if target.host == host)


def test_a_host_whose_probe_hangs_is_a_timeout_and_keeps_its_cells(later: Probed) -> None:
    assert (outcome(later, "stuck").status, outcome(later, "stuck").reason) == ("timeout", "deadline")
    assert [cell.cell.status for cell in later.report.cells if cell.host == "stuck"] == ["extern_only"]
    assert (outcome(later, "mute").status, outcome(later, "mute").reason) == ("timeout", "deadline")
    assert later.code == 1


def test_a_result_that_changed_on_the_way_is_refused(later: Probed) -> None:
    refused = outcome(later, "liar")
    assert (refused.status, refused.reason) == ("failed", "hash")
    assert "arrived changed" in (refused.message or "")
    assert not (later.folder / "hosts/liar/native.jsonl").exists()
    assert not [cell for cell in later.report.cells if cell.host == "liar"]


def test_a_host_that_is_not_ready_says_what_is_missing(later: Probed) -> None:
    assert (outcome(later, "no-python").status, outcome(later, "no-python").reason) == ("blocked", "no_python")
    assert (outcome(later, "no-sftp").status, outcome(later, "no-sftp").reason) == ("blocked", "no_sftp")
    assert "Subsystem sftp" in (outcome(later, "no-sftp").hint or "")


def test_a_bad_host_delays_no_other(later: Probed) -> None:
    ends = [line.split()[0] for line in later.log if line.split()[1] in ("answered", "timeout")]
    assert ends[0] == "quick/native"
    assert set(ends[1:]) == {"stuck/native", "mute/native"}


def test_nothing_stays_on_them_either(lab: Lab, later: Probed) -> None:
    for host in LATER:
        assert list(lab.work(host).iterdir()) == [], host
        assert lab.processes(host) == [], host


# ------------------------------------------------------------------ in mid-run


def test_a_dropped_connection_is_picked_up(lab: Lab) -> None:
    go = lab.folder / "go"
    lab.add("dropped", python=lab.play("dropped", WAIT.format(go=str(go))))
    process = lab.atlas("probe", "dropped", reports="dropped")
    read_until(process, "dropped/native cell")
    sessions = lab.fleet.processes("dropped")
    assert sessions
    for pid in sessions:
        os.kill(pid, signal.SIGKILL)
    read_until(process, "dropped/native retrying connection lost")
    go.touch()
    _, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert lab.outcomes("dropped")["dropped"].status == "answered"
    assert list(lab.work("dropped").iterdir()) == []


def test_killed_with_its_keeper_the_row_says_so(lab: Lab) -> None:
    """What the kernel does with a whole cgroup that is out of memory."""
    lab.add("killed", python=lab.play("killed", stand_ins.HANG))
    process = lab.atlas("probe", "killed", reports="killed")
    read_until(process, "killed/native cell")
    keeper = json.loads(next(lab.work("killed").glob("*/run-*/handle.json")).read_text())["pid"]
    for pid in [keeper, *lab.processes("killed")]:
        os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 1
    row = lab.outcomes("killed")["killed"]
    assert (row.status, row.reason) == ("partial", "cut_short")
    assert "killed from outside" in (row.message or "")
    assert "journalctl -k" in (row.message or "")
    assert "extern" in out, "its cell still counts"
    assert list(lab.work("killed").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupt_leaves_nothing_on_the_host(lab: Lab, number: signal.Signals) -> None:
    """The real payload, while it imports torch and looks for the vector ISA."""
    name = f"interrupted-{number.name.lower()}"
    lab.add(name)
    process = lab.atlas("probe", name, reports=name)
    wait_until(lambda: len(lab.processes(name)) >= 3)
    process.send_signal(number)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 1, err
    assert lab.outcomes(name)[name].status == "cancelled"
    assert lab.processes(name) == []
    assert list(lab.work(name).iterdir()) == []


def test_a_killed_harness_leaves_a_readable_run_and_the_host_cleans_up(lab: Lab) -> None:
    lab.add("bystander", python=lab.play("bystander", stand_ins.ANSWER))
    lab.add("orphan", python=lab.play("orphan", stand_ins.HANG), timeout=20.0)
    process = lab.atlas("probe", "bystander", "orphan", reports="orphan")
    read_until(process, "bystander/native answered", "orphan/native cell")
    process.kill()
    process.communicate(timeout=30)

    report = lab.atlas("report", "--json", reports="orphan")
    out, err = report.communicate(timeout=60)
    assert report.returncode == 1, err
    rows = {target.host: target.outcome.status for target in Report.model_validate_json(out).targets}
    assert rows == {"bystander": "answered", "orphan": "not_run"}
    for name in ("report.html", "report.md"):
        assert (lab.folder / "orphan/latest" / name).stat().st_size > 0

    # The payload ends by its own deadline, though nobody asks any more.
    (folder,) = lab.work("orphan").glob("*/run-*")
    assert lab.processes("orphan")
    wait_until(lambda: not lab.processes("orphan"))
    wait_until((folder / "exit.json").exists)
    assert json.loads((folder / "exit.json").read_text())["reason"] == "deadline"

    # Its directory stays for its keep time, and goes with the first run after that.
    lab.play("orphan", stand_ins.ANSWER)
    assert probe(lab, "orphan", reports="next").code == 0
    assert folder.is_dir()
    past = time.time() - 25 * 3600
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (past, past))
    assert probe(lab, "orphan", reports="next").code == 0
    assert list(lab.work("orphan").iterdir()) == []
