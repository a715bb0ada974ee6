"""The payload's command line where torch is missing, broken or hung, and on every Python from 3.9 on."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.payload import Result
from harness.wire import parse

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD = ROOT / "probe_payload.py"
SOURCE = PAYLOAD.read_text(encoding="utf-8")
FUNCTIONS = ["matmul", "pointwise", "softmax"]

# What stands in for torch on a path in front of the real one.
NO_TORCH = """\
import sys
class _Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, _Refuse())
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which `import torch` fails, whatever the interpreter has."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NO_TORCH, encoding="ascii")
    return {**os.environ, "PYTHONPATH": str(folder)}


def payload(*arguments: str, python: str = sys.executable, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(PAYLOAD), *arguments], capture_output=True, text=True, timeout=100, check=False, **more
    )


# ---------------------------------------------------------------- without torch


def test_the_environment_of_these_tests_really_has_no_torch(without_torch: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", "import torch"], env=without_torch, capture_output=True, text=True)
    assert done.returncode == 1 and "No module named 'torch'" in done.stderr


def test_list(without_torch: dict[str, str]) -> None:
    done = payload("--list", env=without_torch)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == FUNCTIONS
    assert "pointwise (a*b+c).relu()" in done.stdout


def test_list_needs_only_the_standard_library() -> None:
    # -I ignores the environment and the user's folder, -S every site-packages.
    done = subprocess.run([sys.executable, "-I", "-S", str(PAYLOAD), "--list"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_describe(without_torch: dict[str, str]) -> None:
    done = payload("--describe", env=without_torch)
    assert done.returncode == 0
    described = json.loads(done.stdout)
    assert [function["name"] for function in described["functions"]] == FUNCTIONS
    assert {"generated", "no_graph", "blocked"} <= set(described["statuses"])
    assert {"no_cxx", "no_openssl", "hang"} <= set(described["reasons"])
    assert described["kinds"]["cpp"] == "C++ / OpenMP"
    assert set(described["called_kinds"]) <= set(described["kinds"])
    assert described["routes"][0] == "run_and_get_code"


def test_help_and_version(without_torch: dict[str, str]) -> None:
    done = payload("--help", env=without_torch)
    assert done.returncode == 0
    for option in ("--out", "--list", "--describe", "--device", "--function", "--timeout", "--route", "exit codes"):
        assert option in done.stdout
    done = payload("--version", env=without_torch)
    assert (done.returncode, done.stdout.strip()) == (0, json.loads(payload("--describe").stdout)["version"])


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--function", "conv"], "allowed: matmul, pointwise, softmax"),
        (["--device", "gpu"], "allowed: cpu, mps, cuda, cuda:N, rocm, xpu, xpu:N"),
        (["--device", "cpu:1"], "allowed: cpu"),
        (["--route", "guess"], "run_and_get_code"),
        (["--timeout", "0"], "more than 0"),
        (["--timeout", "nan"], "more than 0"),
        (["--timeout", "soon"], "--timeout"),
        (["--deadline", "-1"], "more than 0"),
        (["--jobs", "0"], "must be 1 or more"),
        (["--jobs", "two"], "--jobs"),
        (["--isolation", "thread"], "spawn"),
        (["--workdir", "/nonexistent"], "not a directory"),
        (["--functions", "/nonexistent.py"], "/nonexistent.py"),
        (["--cell-megabytes", "0"], "must be 1 or more"),
        (["--out", "/nonexistent/out.jsonl"], "/nonexistent/out.jsonl"),
        (["--colour"], "--colour"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_option_says_what_is_allowed(arguments: list[str], allowed: str, without_torch: dict[str, str]) -> None:
    done = payload(*arguments, env=without_torch)
    assert done.returncode == 2, done.stderr
    assert allowed in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "no FUNCTIONS"),
        ("FUNCTIONS = make()\n", ":1: FUNCTIONS must be a dictionary"),
        ("FUNCTIONS = {\n", "--functions"),
        ("FUNCTIONS = {name: (1, 2, 3)}\n", "--functions"),
        ("FUNCTIONS = {**others}\n", "--functions"),
        ("\x00", "--functions"),
    ],
)
def test_a_bad_pack_is_named(text: str, complaint: str, tmp_path: Path) -> None:
    pack = tmp_path / "pack.py"
    pack.write_text(text, encoding="utf-8")
    done = payload("--functions", str(pack), "--list")
    assert done.returncode == 2, done.stderr
    assert str(pack) in done.stderr and complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pack_is_listed_without_running_it(tmp_path: Path) -> None:
    pack = tmp_path / "pack.py"
    pack.write_text(
        "raise SystemExit('ran')\nFUNCTIONS = {'one': ('the first', f, g), 'two': entry}\n", encoding="ascii"
    )
    done = payload("--functions", str(pack), "--list")
    assert done.returncode == 0, done.stderr
    assert [line.split(None, 1) for line in done.stdout.splitlines()] == [["one", "the first"], ["two", "two"]]


# ---------------------------------------------------------------- a run without torch


def blocked_everywhere(result: Result, reason: str) -> None:
    """One blocked CPU, every cell blocked for the same reason, and a whole file."""
    assert result.faults == [] and result.unknown_fields == {}
    assert [(device.device, device.status, device.reason) for device in result.devices] == [("cpu", "blocked", reason)]
    assert [(cell.function, cell.status, cell.reason) for cell in result.cells] == [
        (name, "blocked", reason) for name in FUNCTIONS
    ]
    assert result.environment is not None and result.environment.torch_version is None
    assert result.environment.unknown["torch_version"]
    assert result.environment.python_version
    assert result.end is not None and result.end.cells == 3


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_torch_is_missing(without_torch: dict[str, str], tmp_path: Path, isolation: str) -> None:
    out = tmp_path / "out.jsonl"
    done = payload("--out", str(out), "--isolation", isolation, env=without_torch)
    assert done.returncode == 4, done.stdout + done.stderr
    result = parse(out.read_bytes())
    blocked_everywhere(result, "no_torch")
    assert {cell.hint for cell in result.cells} == {f"{sys.executable} -m pip install torch"}
    assert json.loads(out.read_text().splitlines()[0])["record"] == "run"
    assert "cell cpu matmul~float32 blocked" in done.stdout


def test_torch_is_missing_for_people(without_torch: dict[str, str]) -> None:
    done = payload(env=without_torch)
    assert done.returncode == 4
    assert "not importable" in done.stdout
    assert "-m pip install torch" in done.stdout
    assert "SUMMARY" in done.stdout and "READING" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.fixture
def fake_torch(tmp_path: Path) -> Iterator[Callable[[str], dict[str, str]]]:
    """Puts a file in torch's place: what an installation that does not load looks like from outside."""

    def put(text: str) -> dict[str, str]:
        folder = tmp_path / "fake"
        (folder / "torch").mkdir(parents=True)
        (folder / "torch" / "__init__.py").write_text(text, encoding="ascii")
        return {**os.environ, "PYTHONPATH": str(folder)}

    yield put


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("text", "reason", "word"),
    [
        ("raise OSError('libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent')", "torch_import", "iJIT_NotifyEvent"),
        ('raise ImportError("libstdc++.so.6: version `GLIBCXX_3.4.30\' not found")', "abi_mismatch", "GLIBCXX"),
        ("import os; os.abort()", "torch_import", ""),
        ("import ctypes; ctypes.string_at(0)", "torch_import", ""),
        ("import os; os._exit(0)", "torch_import", ""),
        ("raise SystemExit('a licence is missing')", "torch_import", ""),
    ],
    ids=["raises", "abi", "aborts", "segfaults", "leaves", "exits"],
)
def test_torch_does_not_load(
    fake_torch: Callable[[str], dict[str, str]], tmp_path: Path, text: str, reason: str, word: str, isolation: str
) -> None:
    out = tmp_path / "out.jsonl"
    done = payload("--out", str(out), "--isolation", isolation, env=fake_torch(text))
    assert done.returncode == 4, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    result = parse(out.read_bytes())
    blocked_everywhere(result, reason)
    assert result.cells[0].message and word in result.cells[0].message


SHORT_WAIT = """\
import sys
import probe_payload
probe_payload.IMPORT_DEADLINE = probe_payload.FACTS_DEADLINE = 0.5
sys.exit(probe_payload.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_importing_torch_hangs(fake_torch: Callable[[str], dict[str, str]], tmp_path: Path, isolation: str) -> None:
    """The payload waits minutes for a slow file system; here, a second."""
    out = tmp_path / "out.jsonl"
    environment = fake_torch("import time\nwhile True: time.sleep(1)")
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", SHORT_WAIT, "--out", str(out), "--isolation", isolation],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stdout + done.stderr
    result = parse(out.read_bytes())
    blocked_everywhere(result, "torch_import")


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_the_run_ends_by_its_deadline_while_torch_hangs(
    fake_torch: Callable[[str], dict[str, str]], tmp_path: Path, isolation: str
) -> None:
    out = tmp_path / "out.jsonl"
    environment = fake_torch("import time\nwhile True: time.sleep(1)")
    done = payload("--out", str(out), "--deadline", "1.5", "--isolation", isolation, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    result = parse(out.read_bytes())
    assert [(cell.function, cell.status, cell.reason) for cell in result.cells] == [
        (name, "not_run", "deadline") for name in FUNCTIONS
    ]
    assert result.end is not None and result.end.reason == "deadline"


# ---------------------------------------------------------------- every Python


def interpreters() -> dict[str, str]:
    """version -> path of each Python here that the payload supports: this one, those on PATH, kept by pyenv or uv."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    kept = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"]
    kept.append(Path.home() / ".local" / "share" / "uv" / "python")
    for version in (f"3.{minor}" for minor in range(9, 16)):
        candidates = [shutil.which(f"python{version}")]
        candidates += [str(path) for folder in kept for path in folder.glob(f"*/bin/python{version}")]
        for candidate in filter(None, candidates):
            # A shim of pyenv exists for versions that it does not run.
            ask = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            done = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=False)
            if done.stdout.strip() == version:
                found.setdefault(version, candidate)
    return found


@pytest.mark.parametrize(("version", "python"), sorted(interpreters().items()), ids=lambda value: value.split("/")[-1])
def test_runs_on(version: str, python: str, without_torch: dict[str, str], tmp_path: Path) -> None:
    described = payload("--describe", python=python, env=without_torch)
    assert described.returncode == 0, described.stderr
    assert json.loads(described.stdout) == json.loads(payload("--describe").stdout)
    out = tmp_path / "out.jsonl"
    done = payload("--out", str(out), python=python, env=without_torch)
    assert done.returncode == 4, done.stderr
    result = parse(out.read_bytes())
    blocked_everywhere(result, "no_torch")
    assert result.environment is not None and str(result.environment.python_version).startswith(version + ".")


def test_the_syntax_is_that_of_python_3_9() -> None:
    ast.parse(SOURCE, feature_version=(3, 9))


def imports(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a file that travels alone has no relatives"
            names.add(str(node.module).split(".")[0])
    return names


def test_imports_the_standard_library_at_the_top_and_torch_below() -> None:
    tree = ast.parse(SOURCE)
    top = imports(ast.Module([node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))], []))
    assert top <= sys.stdlib_module_names
    assert imports(tree) - sys.stdlib_module_names == {"torch"}


def test_importing_it_imports_no_torch() -> None:
    code = "import sys, probe_payload; print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_inline_script_metadata_names_python_and_torch() -> None:
    block = SOURCE.split("# ///")[1]
    assert 'requires-python = ">=3.9"' in block
    assert 'dependencies = ["torch>=2.1"]' in block


# ---------------------------------------------------------------- processes

ORPHAN = """\
import os, time, probe_payload
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
probe_payload.die_with_parent(parent)
print("lives on")
"""


def test_a_process_whose_parent_died_before_it_could_ask_ends_too() -> None:
    """The kernel tells only of a death that comes after the question; this one came before."""
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
