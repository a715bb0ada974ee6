"""The command line: words, exit codes, JSON, and what an interrupt does.

The hosts are this machine with a python that plays the payload (tests/stand_ins.py); the fleet of
real sshd and real torch is tests/sshd/test_fleet_run.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness import __main__ as entry
from harness import cli, inventory, store
from harness.records import Report
from tests import stand_ins

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("probe", "plan", "report", "hosts", "images", "demo")


def atlas(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "harness", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(argv, cwd=cwd or ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """A folder with a hosts.yaml: `good` answers, `slow` begins and hangs, `deaf` also ignores gentle words."""
    programs = {"good": stand_ins.ANSWER, "slow": stand_ins.HANG, "deaf": stand_ins.STUBBORN}
    lines = ["hosts:"]
    for name, program in programs.items():
        (tmp_path / f"{name}-work").mkdir()
        lines += [
            f"  {name}:",
            "    transport: local",
            f"    python: {stand_ins.python(tmp_path, name, program)}",
            f"    workdir: {tmp_path}/{name}-work",
            "    timeout: 100",
            f"    groups: [{'sound' if name == 'good' else 'unsound'}]",
        ]
    lines += ["groups:", "  sound:", "    description: they answer", "  unsound:"]
    (tmp_path / "hosts.yaml").write_text("\n".join(lines) + "\n")
    yield tmp_path
    stand_ins.kill_in(tmp_path.glob("*-work"))


@pytest.fixture
def here(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab as working directory, for commands that run in this process."""
    monkeypatch.chdir(lab)
    return lab


def words_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capsys.readouterr()
    return code, out, err


# ------------------------------------------------------------------ words


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=lambda words: " ".join(words) or "atlas")
def test_help(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "exit codes:" in text
    if not command:
        assert set(re.findall(r"^    (\w+) ", text, flags=re.M)) == set(COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"inductor-atlas {harness.__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "COMMAND"),
        (("prbe",), "probe"),
        (("probe", "good", "--timeout", "0"), "argument --timeout: 0: seconds, more than 0"),
        (("probe", "good", "--timeout", "soon"), "argument --timeout: soon: seconds, more than 0"),
        (("probe", "good", "--timeout", "nan"), "argument --timeout: nan: seconds, more than 0"),
        (("probe", "good", "--jobs", "0"), "argument --jobs: 0: must be a whole number, 1 or more"),
        (("probe", "good", "--workers", "many"), "argument --workers: many: must be a whole number, 1 or more"),
        (("hosts", "--colour"), "--colour"),
    ],
    ids=str,
)
def test_words_that_cannot_be_parsed(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("probe",), "say which hosts, or --all"),
        (("probe", "good", "--all"), "say which hosts, or --all"),
        (("probe", "good", "--all", "--limit", "good"), "say which hosts, or --all"),
        (("probe", "goood"), "did you mean good?"),
        (("plan", "sonud"), "did you mean sound"),
        (("probe", "good/docker"), "good/native"),
        (("probe", "good", "--function", "matmull"), "there are: matmul, pointwise, softmax"),
        (("probe", "good", "--device", "gpu"), "cpu, mps, cuda, cuda:N, rocm, xpu, xpu:N"),
        (("hosts", "--limit", ","), "the pattern is empty"),
        (("hosts", "--hosts", "nowhere.yaml"), "nowhere.yaml:1:1 there is no such file"),
        (("report", "2001"), "2001 is not a run"),
    ],
    ids=str,
)
def test_wrong_words(words: tuple[str, ...], says: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = words_of(capsys, *words)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_faults_of_the_inventory_come_all_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hosts.yaml").write_text("hosts:\n  one: {adress: a}\n  two: {port: high}\n")
    code, _, err = words_of(capsys, "plan", "--all")
    assert code == 2
    assert [line.split(" ")[0] for line in err.splitlines() if line.startswith("hosts.yaml")] == [
        "hosts.yaml:2:9",
        "hosts.yaml:3:15",
    ]


@pytest.mark.parametrize(
    "words",
    [("plan", "good", "--limit", "slow"), ("probe", "sound", "--limit", "unsound,deaf")],
)
def test_a_limit_that_leaves_none_of_the_named_hosts(
    words: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = words_of(capsys, *words)
    assert code == 5
    assert "--limit leaves none of the hosts that are named\n  named are good" in err


@pytest.mark.parametrize(
    "words",
    [("probe", "--limit", "good:&unsound"), ("probe", "--limit", "nobody*"), ("hosts", "--limit", "good:!good")],
)
def test_nothing_selected(words: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = words_of(capsys, *words)
    assert code == 5
    assert "selects no host" in err


def test_nothing_to_probe_says_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (here / "hosts.yaml").open("a") as file:
        file.write("defaults:\n  targets:\n    native:\n      backends: [cpu]\n")
    code, _, err = words_of(capsys, "probe", "good", "--device", "cuda")
    assert code == 5
    assert "hosts.yaml has it look for cpu; --device asks for cuda" in err
    assert not (here / "reports").exists()


def test_a_bug_says_that_it_is_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("of our own making")

    monkeypatch.setattr(inventory, "load", broken)
    code, _, err = words_of(capsys, "hosts")
    assert code == 70
    assert "RuntimeError: of our own making" in err
    assert "this is a bug of inductor-atlas" in err


def test_a_reader_that_leaves_early_is_no_error(lab: Path) -> None:
    argv = f"{sys.executable} -m harness hosts --json --hosts {lab}/hosts.yaml; echo $? >&2"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"({argv}) | true"], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    _, err = shell.communicate(timeout=60)
    assert err == "0\n"


# ------------------------------------------------------------------ plan, hosts


def test_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = words_of(capsys, "plan", "--all", "--device", "cpu", "--function", "matmul")
    assert code == 0
    assert out.splitlines()[0] == "good/native  good  bare  devices: cpu  matmul  within 100 s"
    assert len(out.splitlines()) == 3
    assert not (here / "reports").exists(), "a plan touches nothing"


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (("good", "slow", "--limit", "unsound"), ["slow"]),
        (("unsound", "--limit", "d*"), ["deaf"]),
        (("--all", "--limit", "good", "--limit", "deaf"), ["good", "deaf"]),
        (("--limit", "sound"), ["good"]),
        (("slow/native", "deaf", "--limit", "all:!deaf/native"), ["slow"]),
    ],
    ids=str,
)
def test_a_limit_narrows_what_is_named(
    words: tuple[str, ...], hosts: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = words_of(capsys, "plan", *words)
    assert code == 0
    assert [line.partition("/")[0] for line in out.splitlines()] == hosts


def test_make_probe_all_passes_every_word_on() -> None:
    argv = ["make", "--dry-run", "probe-all", "LIMIT=gpu", "HOST=x"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert re.search(r'probe --all .*--limit="\$LIMIT".*-- "\$HOST"', done.stdout), done.stdout


def test_plan_says_what_is_skipped_and_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (here / "hosts.yaml").read_text()
    first = before.replace("timeout: 100\n", "timeout: 100\n    targets: {t: {backends: [cpu]}}\n", 1)
    (here / "hosts.yaml").write_text(first)
    code, out, _ = words_of(capsys, "plan", "--all", "--device", "cuda")
    assert code == 0
    assert out.splitlines()[0] == "good/t  skipped: hosts.yaml has it look for cpu; --device asks for cuda"
    assert out.splitlines()[1].startswith("slow/native  slow  bare  devices: cuda  all functions")


def test_plan_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = words_of(capsys, "plan", "--all", "--json", "--timeout", "7")
    entries = json.loads(out)
    assert (code, err) == (0, "")
    assert [(entry["host"], entry["target"]) for entry in entries] == [
        ("good", "native"),
        ("slow", "native"),
        ("deaf", "native"),
    ]
    assert entries[0]["job"]["selection"]["cell_timeout"] == 7.0


def test_hosts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = words_of(capsys, "hosts", "--limit", "unsound")
    assert code == 0
    assert out.splitlines() == [
        "slow  this computer  native (bare)  unsound",
        "deaf  this computer  native (bare)  unsound",
    ]


def test_hosts_over_ssh(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hosts.yaml").write_text("hosts:\n  far: {address: 10.0.0.7, jump: 'me@bastion,inner:2222'}\n  near:\n")
    _, out, _ = words_of(capsys, "hosts")
    assert out.splitlines() == [
        "far   ssh 10.0.0.7 via me@bastion inner:2222  native (bare)",
        "near  ssh near  native (bare)",
    ]


def test_hosts_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = words_of(capsys, "hosts", "--json")
    assert code == 0
    assert [host["name"] for host in json.loads(out)] == ["good", "slow", "deaf"]


def test_without_a_hosts_yaml_there_is_this_computer(tmp_path: Path) -> None:
    done = atlas("hosts", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "localhost  this computer  native (bare), docker (docker)\n")


# ------------------------------------------------------------------ probe, report


def test_probe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = words_of(capsys, "probe", "good")
    assert code == 0, err
    row = next(line for line in out.splitlines() if line.startswith("good ") and "2.13.0" in line)
    assert row.split() == ["good", "cpu", "2.13.0+cpu", "extern"]
    run = store.open_run(Path("reports"))
    assert out.splitlines()[-3:] == [str(run.folder / name) for name in ("report.html", "report.md", "report.json")]
    for name in ("report.html", "report.md", "report.json", "log.txt", "run.json", "hosts/good/native.jsonl"):
        assert (Path("reports/latest") / name).stat().st_size > 0
    assert "good/native connecting" in err
    assert "good/native answered" in err
    assert "cell cpu matmul" not in (run.folder / "run.json").read_text()
    assert list((here / "good-work").iterdir()) == [], "nothing of ours stays on the host"


def test_probe_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = words_of(capsys, "probe", "good", "--json", "--reports", "elsewhere")
    assert code == 0
    report = Report.model_validate_json(out)
    assert [target.outcome.status for target in report.targets] == ["answered"]
    assert (here / "elsewhere/runs" / report.run / "report.json").read_text() == out


def test_the_words_reach_the_payload(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words_of(capsys, "probe", "good", "--device", "cpu", "--function", "matmul", "--timeout", "9", "--jobs", "2")
    outcome, _ = store.open_run(Path("reports")).results()["good/native"]
    argv = list(outcome.argv)
    for option, value in (("--device", "cpu"), ("--function", "matmul"), ("--timeout", "9"), ("--jobs", "2")):
        assert argv[argv.index(option) + 1] == value


def test_report_makes_it_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words_of(capsys, "probe", "good")
    run = store.open_run(Path("reports"))
    names = ("report.html", "report.md", "report.json")
    first = {name: (run.folder / name).read_text() for name in names}
    for name in names:
        (run.folder / name).unlink()
    code, out, _ = words_of(capsys, "report", run.id[:11])
    assert code == 0
    assert "good " in out
    assert {name: (run.folder / name).read_text() for name in names} == first


def test_report_of_a_run_that_was_killed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words_of(capsys, "probe", "good")
    run = store.open_run(Path("reports"))
    (run.folder / "hosts/good/native.outcome.json").unlink()
    code, out, _ = words_of(capsys, "report", "--json")
    report = json.loads(out)
    assert code == 1
    assert report["targets"][0]["outcome"]["reason"] == "harness_stopped"
    assert report["ended"] is None
    assert len(report["cells"]) == 1


@pytest.mark.parametrize(("status", "expected"), [("failed", 1), ("unsupported", 0), ("blocked", 3)])
def test_the_exit_code_is_that_of_the_cells(
    here: Path, capsys: pytest.CaptureFixture[str], status: str, expected: int
) -> None:
    stand_ins.python(here, "good", stand_ins.ANSWER, stand_ins.result(status=status))
    code, _, err = words_of(capsys, "probe", "good")
    assert code == expected
    assert ("no host answered; see" in err) is (expected == 3)


@pytest.mark.parametrize(
    ("program", "reason", "says"),
    [
        ("sys.exit('torch is on fire')", "no_result", "ended with code 1: torch is on fire"),
        ("Path(OUT).write_bytes(b'<html>')", "result", "not a result"),
        ("Path(OUT).write_bytes(RESULT[:-60]); os.kill(os.getpid(), 11)", "cut_short", "ended with code -11"),
    ],
    ids=["no result", "no records", "no end"],
)
def test_a_payload_that_goes_wrong_is_a_row(
    here: Path, capsys: pytest.CaptureFixture[str], program: str, reason: str, says: str
) -> None:
    stand_ins.python(here, "good", program)
    code, _, _ = words_of(capsys, "probe", "good")
    outcome, _ = store.open_run(Path("reports")).results()["good/native"]
    assert code in (1, 3)
    assert outcome.reason == reason
    assert says in (outcome.message or "")
    assert list((here / "good-work").iterdir()) == []


@pytest.mark.parametrize(("status", "expected"), [("extern_only", 0), ("failed", 1)])
def test_a_reader_that_leaves_in_mid_probe_changes_nothing(lab: Path, status: str, expected: int) -> None:
    """As in `atlas probe good 2>&1 | head -1`: the results are stored, and the exit code is theirs."""
    waits = f"import time\nwhile not Path({str(lab / 'go')!r}).exists(): time.sleep(0.05)\n{stand_ins.ANSWER}"
    stand_ins.python(lab, "good", waits, stand_ins.result(status=status))
    argv = [sys.executable, "-m", "harness", "probe", "good", "--hosts", f"{lab}/hosts.yaml", "--reports"]
    process = subprocess.Popen([*argv, f"{lab}/reports"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"good/native connecting\n"
    process.stdout.close()
    (lab / "go").touch()
    assert process.wait(timeout=100) == expected
    run = store.open_run(lab / "reports")
    assert run.results()["good/native"][0].status == "answered"
    assert (run.folder / "report.html").stat().st_size > 0
    assert "good/native answered" in (run.folder / "log.txt").read_text()


# ------------------------------------------------------------------ interrupts


def probing(lab: Path, *hosts: str) -> subprocess.Popen[str]:
    """A probe of hosts that hang, once each has begun its first cell."""
    argv = [sys.executable, "-m", "harness", "probe", "--hosts", str(lab / "hosts.yaml"), "--reports"]
    process = subprocess.Popen([*argv, str(lab / "reports"), *hosts], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stderr is not None
    begun = set()
    while begun != set(hosts):
        line = process.stderr.readline()
        assert line, "it ended before the hosts began"
        begun |= {host for host in hosts if line.startswith(f"{host}/native cell")}
    return process


def report_of(lab: Path) -> Report:
    return Report.model_validate_json((lab / "reports/latest/report.json").read_bytes())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_one_interrupt_ends_gently_and_keeps_what_came_in(lab: Path, number: signal.Signals) -> None:
    process = probing(lab, "slow", "good")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ending the probes and keeping what came in; once more to stop at once" in err
    assert "Traceback" not in err
    report = report_of(lab)
    outcome = next(target.outcome for target in report.targets if target.host == "slow")
    assert (outcome.status, outcome.reason) == ("cancelled", "interrupted")
    assert [cell.cell.status for cell in report.cells if cell.host == "slow"] == ["extern_only"]
    assert "report.html" in out
    assert list((lab / "slow-work").iterdir()) == []
    assert stand_ins.processes_in(lab.glob("*-work")) == []


def test_an_interrupt_before_the_first_cell_is_no_matter_of_the_hosts(lab: Path) -> None:
    stand_ins.python(lab, "slow", "import time; time.sleep(600)")
    argv = [sys.executable, "-m", "harness", "probe", "slow", "--hosts", f"{lab}/hosts.yaml", "--reports"]
    process = subprocess.Popen([*argv, f"{lab}/reports"], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while not stand_ins.processes_in(lab.glob("*-work")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert [target.outcome.status for target in report_of(lab).targets] == ["cancelled"]


def test_a_host_that_had_answered_stays_answered(lab: Path) -> None:
    process = probing(lab, "slow", "good")
    assert process.stderr is not None
    while "good/native answered" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert {target.host: target.outcome.status for target in report_of(lab).targets} == {
        "slow": "cancelled",
        "good": "answered",
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_second_interrupt_stops_at_once(lab: Path, number: signal.Signals) -> None:
    """`deaf` does not end by a gentle word, so that the first interrupt is still at work."""
    process = probing(lab, "deaf")
    process.send_signal(number)
    assert process.stderr is not None
    while "once more to stop at once" not in process.stderr.readline():
        pass
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    run = store.open_run(lab / "reports")
    assert not (run.folder / "report.json").exists()
    done = atlas("report", "--reports", str(lab / "reports"), "--json")
    assert done.returncode == 3, "not one cell had been fetched"
    assert json.loads(done.stdout)["targets"][0]["outcome"]["status"] == "not_run"


def test_an_interrupt_while_the_modules_load_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own handler would raise in the middle of an import, where pydantic may swallow it."""
    seen: list[object] = []

    def run() -> int:
        seen.append(signal.getsignal(signal.SIGINT))
        return 0

    monkeypatch.setattr(cli, "main", run)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert entry.main() == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_DFL]
