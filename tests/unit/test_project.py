"""The house rules that a machine can check: sizes, layers, registries, locks, words that must agree."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setup_env

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it there

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAYLOAD = ROOT / "probe_payload.py"
SOURCES = [PAYLOAD, *sorted((ROOT / "harness").rglob("*.py")), *sorted((ROOT / "tools").glob("*.py"))]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def own_files() -> list[Path]:
    """The files that git tracks or would track; in a tree without git, all but caches."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=60)
    if done.returncode == 0:
        found = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    else:
        hidden = {".git", ".venv", "__pycache__", "build", "dist", "reports"}
        found = [path for path in ROOT.rglob("*") if not hidden.intersection(path.relative_to(ROOT).parts)]
    return [path for path in found if path.is_file()]


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_module_is_small(path: Path) -> None:
    budget = 2900 if path == PAYLOAD else 400
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= budget, f"{name_of(path)} has {lines} lines; split it ({budget} at most)"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 60
    ]
    assert not long, "60 lines at most: " + "; ".join(long)


def test_no_junk_drawer() -> None:
    drawers = [name_of(path) for path in SOURCES if path.stem in {"utils", "util", "helpers", "common", "misc"}]
    assert not drawers, "name a module by what it does"


# ---------------------------------------------------------------- layers


def imported_modules(path: Path) -> set[str]:
    """The top-level names that a file imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            names.add((node.module or "").partition(".")[0])
    return names


def test_payload_needs_only_the_standard_library_and_torch() -> None:
    foreign = imported_modules(PAYLOAD) - sys.stdlib_module_names - {"torch", "triton"}
    assert not foreign, f"the payload travels alone, but imports {sorted(foreign)}"


def test_set_up_needs_only_the_standard_library() -> None:
    own = {path.stem for path in (ROOT / "tools").glob("*.py")}
    for path in (ROOT / "tools").glob("*.py"):
        assert imported_modules(path) <= sys.stdlib_module_names | own, name_of(path)


def test_payload_parses_as_python_3_9() -> None:
    ast.parse(PAYLOAD.read_text(encoding="utf-8"), feature_version=(3, 9))


def test_every_room_has_its_layer() -> None:
    """A module that no layer names would be free to import anything."""
    (contract,) = PROJECT["tool"]["importlinter"]["contracts"]
    placed = set(re.findall(r"harness\.(\w+)", " ".join(contract["layers"])))
    rooms = {path.stem for path in (ROOT / "harness").glob("*.py")} - {"__init__"}
    rooms |= {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")}
    assert rooms <= placed, f"add to pyproject.toml, tool.importlinter: {sorted(rooms - placed)}"


# lint-imports as a program would look for the harness beside its own interpreter, not in the folder it is run in.
LINT_IMPORTS = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as c; c()"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", LINT_IMPORTS, "--no-cache"]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_imports_point_down() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_import_that_points_up_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "harness/errors.py").open("a", encoding="utf-8") as file:
        file.write("\nimport harness.records\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "harness.errors is not allowed to import harness.records" in done.stdout


@pytest.mark.parametrize("folder", ["transports", "launchers", "runtimes"])
def test_every_file_of_an_axis_is_a_member_or_part_of_one(folder: str) -> None:
    """What the folder's registry names is there, and every other file is used by a member."""
    room = ROOT / "harness" / folder

    def named(module: str) -> set[str]:
        text = (room / f"{module}.py").read_text(encoding="utf-8")
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        imported = {a.name for node in nodes if node.module == f"harness.{folder}" for a in node.names}
        return set(re.findall(rf"harness\.{folder}\.(\w+)", text)) | imported

    files = {path.stem for path in room.glob("*.py")} - {"__init__", "base"}
    members = named("__init__") - {"base"}
    assert members, f"harness/{folder}/__init__.py names no member"
    assert members <= files, f"harness/{folder}/__init__.py names what is not there: {sorted(members - files)}"
    reached, waiting = set[str](), list(members)
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting += (named(module) & files) - reached
    assert files <= reached, f"nothing of harness/{folder} uses {sorted(files - reached)}"


# ---------------------------------------------------------------- locks and versions


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_lock_pins_everything_with_hashes_and_holds_no_address(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    entries = [entry for entry in re.sub(r"\\\n\s*", " ", text).splitlines() if entry and not entry.startswith("#")]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_locks_agree_and_leave_torch_out() -> None:
    pins: dict[str, set[str]] = {}
    for lock in LOCKS:
        for line in lock.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"([a-z0-9._-]+)==(\S+)( ; .*)? \\", line):
                pins.setdefault(f"{match.group(1)}{match.group(3) or ''}", set()).add(match.group(2))
    assert not {name: versions for name, versions in pins.items() if len(versions) > 1}
    assert not {"torch", "triton"} & pins.keys()


def test_lock_covers_what_the_project_asks_for() -> None:
    text = (ROOT / "requirements/core.lock").read_text(encoding="utf-8")
    for requirement in PROJECT["project"]["dependencies"]:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name is not None
        assert f"\n{name.group()}==" in text, f"{requirement} is not in requirements/core.lock; type: make lock"


def test_one_place_says_which_torch() -> None:
    assert PROJECT["dependency-groups"]["probe"] == [f"torch=={setup_env.wanted_torch()}"]


def test_payload_carries_script_metadata() -> None:
    block = re.search(r"^# /// script\n(.*?)^# ///$", PAYLOAD.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert block is not None
    metadata = tomllib.loads(re.sub(r"^# ?", "", block.group(1), flags=re.M))
    assert metadata["requires-python"] == ">=3.9"
    assert [re.split(r"[<>=]", word)[0] for word in metadata["dependencies"]] == ["torch"]


# ---------------------------------------------------------------- words


def test_no_file_carries_a_machines_paths_or_private_indexes() -> None:
    # Put together here, so that this file does not carry what it looks for.
    wrong = re.compile(
        "|".join(("/".join(("", "work", "")), "/".join(("", "root", "")), "-".join(("--extra", "index", "url"))))
    )
    faults = []
    for path in own_files():
        if "data" in path.parts or path.suffix in {".png", ".gz"}:
            continue  # recorded and generated texts keep the paths of the machine that made them
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if wrong.search(line):
                faults.append(f"{name_of(path)}:{number}: {line.strip()[:100]}")
    assert not faults, "\n".join(faults)


def test_make_targets_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.M))
    for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        document = ROOT / name
        if not document.is_file():
            continue
        code = re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8"))
        code += re.findall(r"^```\w*\n(.*?)^```", document.read_text(encoding="utf-8"), flags=re.M | re.S)
        named = set(re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(code)))
        assert named <= targets, f"{name} names targets that the Makefile lacks: {sorted(named - targets)}"


# ---------------------------------------------------------------- skips


SKIPPING = """
import pytest
def test_tool(): pytest.skip("sshd is not installed: make system-deps")
def test_hardware(): pytest.skip("needs a GPU: run on a machine with one")
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""
SKIPPING_MODULE = """
import pytest
pytest.skip("sshd is not installed: make system-deps", allow_module_level=True)
"""


def run_pytest(folder: Path, tests: str, no_skip: str) -> subprocess.CompletedProcess[str]:
    """pytest over one file, with this project's conftest.py beside it."""
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "test_it.py").write_text(tests, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "ATLAS_NO_SKIP": no_skip}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("no_skip", "failures"), [("0", 0), ("1", 1)])
def test_a_skip_that_could_be_mended_fails_on_ci(tmp_path: Path, no_skip: str, failures: int) -> None:
    done = run_pytest(tmp_path, SKIPPING, no_skip)
    assert done.returncode == failures, done.stdout
    assert f"{2 - failures} skipped, 1 xfailed" in done.stdout
    assert ("make system-deps" in done.stdout) is bool(failures)


def test_a_module_that_skips_itself_fails_on_ci_too(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, SKIPPING_MODULE, "0").returncode == 5
    done = run_pytest(tmp_path, SKIPPING_MODULE, "1")
    assert done.returncode == 2, done.stdout
    assert "make system-deps" in done.stdout
