"""Whole runs of the payload: what it writes, how it starts its cells, how it is stopped, what a host may lack."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest

from harness.normalise import normal_hash
from harness.wire import parse
from probe_payload import FUNCTIONS, RAN_STATUSES, SCHEMA_VERSION
from tests.payload.runs import HERE, LIMIT, PAYLOAD, ROOT, Run, argv_and_environment, marked, run_payload

KINDS = {"matmul": {"extern": 1}, "pointwise": {"cpp": 1}, "softmax": {"cpp": 1}}


# ---------------------------------------------------------------- the result file


def test_a_plain_run(plain: Run) -> None:
    assert plain.code == 0
    assert {cell.function: cell.kinds for cell in plain.result.cells} == KINDS
    assert {cell.status for cell in plain.result.cells} == {"extern_only", "generated"}
    assert {cell.correctness.verdict for cell in plain.result.cells if cell.correctness} <= {"equal", "close"}
    assert all(cell.correctness for cell in plain.result.cells)
    assert plain.left() == []


def test_the_file_is_ascii_and_whole(plain: Run) -> None:
    assert plain.data.isascii() and plain.data.endswith(b"\n")
    result = plain.result
    assert result.faults == [] and result.unknown_fields == {} and result.replaced == 0
    records = [json.loads(line)["record"] for line in plain.data.splitlines()]
    assert records[0] == "run" and records[-1] == "end"
    assert sorted(set(records)) == ["artifact", "cell", "device", "end", "environment", "run"]


@pytest.mark.parametrize("which", ["plain", "spawned", "hazards"])
def test_every_line_fits_the_schema(which: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(which)
    schema = json.loads((ROOT / "harness" / "schemas" / "result.v1.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for line in run.data.splitlines():
        errors = [error.message for error in validator.iter_errors(json.loads(line))]
        assert errors == []


def test_the_run_record_names_the_file_that_ran(plain: Run) -> None:
    run = plain.result.run
    assert run is not None
    assert run.payload_sha256 == hashlib.sha256(PAYLOAD.read_bytes()).hexdigest()
    assert run.schema_version == SCHEMA_VERSION


def test_what_torch_and_the_machine_are(plain: Run) -> None:
    import torch

    facts = plain.result.environment
    assert facts is not None
    assert facts.torch_version == torch.__version__
    assert facts.torch_default_backend == "inductor"
    assert facts.cpu_count == os.cpu_count() and facts.torch_threads
    assert facts.cxx and facts.cxx_version and facts.vector_isa
    assert {fact.name for fact in facts.backends} == {"cuda", "mps", "xpu"}
    assert all(fact.available or fact.reason for fact in facts.backends)
    assert re.fullmatch(r"[0-9a-f]{64}", str(facts.fingerprint)) and "cpu_model" in facts.fingerprint_covers


def test_every_fact_that_is_missing_says_why(plain: Run) -> None:
    for line in map(json.loads, plain.data.splitlines()):
        if line["record"] not in ("environment", "device"):
            continue
        for name, reason in line["unknown"].items():
            assert line[name] is None and reason, name
        optional = {"index", "name", "reason", "message", "hint", "torch_build_version", "mig_parent", "mig_slice"}
        missing = {name for name, value in line.items() if value is None} - optional
        assert missing <= set(line["unknown"]), line["record"]


def test_a_cell_says_how_to_repeat_it(plain: Run) -> None:
    repeat = plain.cell("pointwise").repeat
    assert repeat[1:] == ["probe_payload.py", "--device", "cpu", "--function", "pointwise"]


def test_phases_are_told_in_cpu_seconds(plain: Run) -> None:
    cell = plain.cell("softmax")
    assert [phase.name for phase in cell.phases] == ["inputs", "compile", "eager", "compare"]
    assert (cell.workers == 1) == all(phase.wall_s is not None for phase in cell.phases)


# ---------------------------------------------------------------- fork and spawn


def test_fork_and_spawn_give_the_same(plain: Run, spawned: Run) -> None:
    assert spawned.code == 0
    for function in FUNCTIONS:
        one, other = plain.cell(function), spawned.cell(function)
        assert (one.kinds, one.status) == (other.kinds, other.status)
        assert list(map(normal_hash, plain.codes(function))) == list(map(normal_hash, spawned.codes(function)))
    assert spawned.left() == []


def test_both_find_the_same_vector_isa(plain: Run, spawned: Run) -> None:
    one, other = plain.result.environment, spawned.result.environment
    assert one is not None and other is not None
    assert one.vector_isa == other.vector_isa


# ---------------------------------------------------------------- how a run is stopped


def start_and_wait_for(tmp: Path, word: str, *arguments: str) -> tuple[subprocess.Popen[str], str, Path]:
    """A run of the hazards that has printed a line which starts with `word`."""
    tmp.mkdir()
    out = tmp / "out.jsonl"
    argv, environment, mark = argv_and_environment(
        tmp, "--functions", str(HERE / "hazards.py"), "--out", str(out), "--jobs", "2", *arguments
    )
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return process, mark, out
    raise AssertionError(f"the run ended without {word!r}")


def test_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    chosen = ["--function", "escape", "--function", "hang", "--function", "sort"]
    process, mark, out = start_and_wait_for(tmp_path / "run", "start cpu hang", *chosen)
    assert marked(mark)
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    result = parse(out.read_bytes())
    assert result.end is not None and result.end.reason == "interrupted"
    assert {cell.function: (cell.status, cell.reason) for cell in result.cells} == dict.fromkeys(
        ("escape", "hang", "sort"), ("not_run", "interrupted")
    )
    assert marked(mark) == []
    assert [path.name for path in out.parent.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_torch_is_there(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "run").mkdir()
    out = tmp_path / "run" / "out.jsonl"
    argv, environment, mark = argv_and_environment(tmp_path / "run", "--out", str(out))
    process = subprocess.Popen(argv, env=environment)
    while not any("--zygote" in line for line in marked(mark)):
        time.sleep(0.01)
    process.send_signal(number)
    process.wait(timeout=LIMIT)
    result = parse(out.read_bytes())
    assert {(cell.status, cell.reason) for cell in result.cells} == {("not_run", "interrupted")}
    assert {cell.function for cell in result.cells} == set(FUNCTIONS)
    assert marked(mark) == []


def test_kill_9_of_the_payload_leaves_no_process(tmp_path: Path) -> None:
    """Nobody is left to clean up, so each process has to notice by itself."""
    process, mark, out = start_and_wait_for(tmp_path / "run", "start cpu hang", "--function", "hang")
    process.kill()
    process.communicate(timeout=LIMIT)
    until = time.monotonic() + 60
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked(mark) == []
    assert parse(out.read_bytes()).end is None


def test_the_deadline_of_the_whole_run(tmp_path: Path) -> None:
    run = run_payload(
        tmp_path / "run", "--functions", str(HERE / "hazards.py"), "--function", "hang", "--function", "sort",
        "--function", "escape", "--jobs", "1", "--deadline", "15",
    )  # fmt: skip
    assert run.code == 1
    assert run.result.end is not None and run.result.end.reason == "deadline"
    was_started = "start cpu hang" in run.printed  # on a slow machine the deadline comes before
    assert {cell.function: (cell.status, cell.reason) for cell in run.result.cells} == {
        "hang": ("timeout" if was_started else "not_run", "deadline"),
        "escape": ("not_run", "deadline"),
        "sort": ("not_run", "deadline"),
    }
    assert run.left() == []


def test_a_device_that_is_not_here(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available() or shutil.which("nvidia-smi"):
        pytest.skip("needs a machine without an NVIDIA GPU")
    run = run_payload(tmp_path / "run", "--device", "cuda")
    assert run.code == 5
    assert run.result.devices == [] and run.result.cells == []
    assert run.result.end is not None and run.result.end.reason == "no_device"


# ---------------------------------------------------------------- what a host may lack


def path_without(tmp: Path, *patterns: str) -> str:
    """A PATH with every program of this one but those."""
    shelf = tmp / "bin"
    shelf.mkdir(parents=True)
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if folder else ():
            hidden = any(re.fullmatch(pattern, program.name) for pattern in patterns)
            if not hidden and not (shelf / program.name).is_symlink():
                (shelf / program.name).symlink_to(program)
    return str(shelf)


def test_without_a_compiler(tmp_path: Path) -> None:
    path = path_without(tmp_path / "tools", r"(.*-)?(g|c|clang)\+\+(-\d+)?", r"(.*-)?(gcc|clang|cc|c99|c89)(-\d+)?")
    run = run_payload(tmp_path / "run", environment={"PATH": path, "CXX": "/nonexistent/g++"})
    for function in ("pointwise", "softmax"):
        cell = run.cell(function)
        assert (cell.status, cell.reason) == ("blocked", "no_cxx"), cell.message
        assert cell.hint and "g++" in cell.hint
    assert run.cell("matmul").status in ("extern_only", "blocked")
    facts = run.result.environment
    assert facts is not None and facts.cxx_version is None and facts.unknown["cxx_version"]
    assert run.code == 4


def test_without_openssl(tmp_path: Path) -> None:
    run = run_payload(tmp_path / "run", environment={"PATH": path_without(tmp_path / "tools", "openssl")})
    for function in ("pointwise", "softmax"):
        cell = run.cell(function)
        assert (cell.status, cell.reason) == ("blocked", "no_openssl"), cell.message
        assert cell.hint and "openssl" in cell.hint
    assert run.cell("matmul").status == "extern_only"
    assert run.code == 4


def mounted(tmp: Path, options: str, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a mount namespace of its own, where $M is a tmpfs with these options."""
    place = tmp / "mount"
    place.mkdir(parents=True)
    enter = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be made here: run the tests as root")
    full = f'set -e; mount -t tmpfs -o {options} tmpfs "$M"; {script}'
    return subprocess.run(
        [*enter, "sh", "-c", full], env={**os.environ, "M": str(place), **environment},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def test_a_work_directory_that_allows_no_code(tmp_path: Path) -> None:
    argv, environment, _ = argv_and_environment(tmp_path, "--out", str(tmp_path / "out.jsonl"))
    command = " ".join(f"'{word}'" for word in argv) + ' --workdir "$M"'
    done = mounted(tmp_path, "noexec,mode=0700", command, **environment)
    assert done.returncode == 4, done.stdout + done.stderr
    result = parse((tmp_path / "out.jsonl").read_bytes())
    found = {cell.function: (cell.status, cell.reason) for cell in result.cells}
    assert found["pointwise"] == found["softmax"] == ("blocked", "noexec")
    assert found["matmul"] == ("extern_only", None)
    assert "noexec" in str(next(cell.hint for cell in result.cells if cell.function == "softmax"))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The result file's disk has room for the reserve and a few lines: the run stops, and says so at the end."""
    argv, environment, _ = argv_and_environment(tmp_path)
    command = " ".join(f"'{word}'" for word in argv)
    script = (
        'head -c 24000 /dev/zero > "$M/ballast"; set +e; '
        f'{command} --out "$M/out.jsonl"; code=$?; cp "$M/out.jsonl" "$COPY"; exit $code'
    )
    # 4 kB pages: 256 of the reserve, 6 of the ballast, and 3 for the journal.
    done = mounted(tmp_path, "size=1060k", script, **environment, COPY=str(tmp_path / "copy.jsonl"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    data = (tmp_path / "copy.jsonl").read_bytes()
    for line in data.splitlines():
        json.loads(line)
    result = parse(data)
    assert result.end is not None and result.end.reason == "journal_full"
    assert {cell.function for cell in result.cells} == set(FUNCTIONS)
    assert any(cell.status in RAN_STATUSES or cell.status == "not_run" for cell in result.cells)


def memory_cgroup() -> Path | None:
    """This process's cgroup of the memory controller, version 1 or 2, where one below it can be made."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            return Path("/sys/fs/cgroup/memory" + path)
    return None


def test_the_kernel_kills_a_cell_for_memory(tmp_path: Path) -> None:
    parent = memory_cgroup()
    group = parent / f"probe-{os.getpid()}" if parent else None
    try:
        if group is None:
            raise OSError("no memory controller of version 1")
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(2 << 30), encoding="ascii")
    except OSError as error:
        pytest.skip(f"needs a memory cgroup that may be changed ({error}): run the tests as root")
    try:
        pack = tmp_path / "pack.py"
        pack.write_text(
            "import torch\n"
            "def one(device, dtype): return [torch.ones(4, 4)]\n"
            "def greedy(x):\n"
            "    kept = []\n"
            "    while True: kept.append(bytearray(b'1') * (64 << 20)); print(len(kept), flush=True)\n"
            "def modest(x): return torch.sort(x)[0]\n"
            "FUNCTIONS = {'greedy': ('takes all', greedy, one), 'modest': ('sort', modest, one)}\n",
            encoding="ascii",
        )
        argv, environment, mark = argv_and_environment(
            tmp_path, "--functions", str(pack), "--out", str(tmp_path / "out.jsonl"), "--jobs", "1"
        )
        script = 'echo $$ > "$GROUP/cgroup.procs" && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, "sh", *argv], env={**environment, "GROUP": str(group)},
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        result = parse((tmp_path / "out.jsonl").read_bytes())
        found = {cell.function: (cell.status, cell.reason) for cell in result.cells}
        assert found == {"greedy": ("crashed", "out_of_memory"), "modest": ("extern_only", None)}
        assert result.environment is not None and result.environment.memory_limit_bytes == 2 << 30
        assert marked(mark) == []
    finally:
        group.rmdir()
