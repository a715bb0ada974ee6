"""The set-up program: which torch, what is missing, which Python; nothing here touches a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import machine
import pytest
import setup_env
import torch_choice
from torch_choice import Build, NoBuild, choose

ROOT = Path(__file__).resolve().parents[2]
BUILDS = torch_choice.load_builds()
CPU, CUDA13 = Build("cpu", "2.13.0+cpu"), Build("cuda", "2.13.0", 13)
ROCM, CUDA12 = Build("rocm", "2.13.0+rocm7.2"), Build("cuda", "2.13.0+cu126", 12)


class FakePip:
    """Answers as pip would: its own sources first, then each index by the name at the end of its address."""

    def __init__(self, own: Build | str, **indexes: Build) -> None:
        self.own, self.indexes = own, indexes
        self.asked: list[str] = []

    def __call__(self, arguments: Sequence[str]) -> Build | str:
        if not arguments:
            self.asked.append("own")
            return self.own
        if arguments[0].startswith("torch=="):
            self.asked.append(arguments[0])
            return self.indexes.get("plain", "ERROR: no matching distribution")
        name = arguments[1].rpartition("/")[2]
        self.asked.append(name)
        return self.indexes.get(name.replace(".", "_"), "ERROR: could not connect")


def report(torch: str, *others: str, url: str = "https://example.org/torch.whl") -> dict[str, object]:
    packages = [("torch", torch), *((name, "1.0") for name in others)]
    return {"install": [{"metadata": {"name": n, "version": v}, "download_info": {"url": url}} for n, v in packages]}


# ---------------------------------------------------------------- the build in pip's report


@pytest.mark.parametrize(
    ("version", "others", "expected"),
    [
        ("2.13.0+cpu", [], Build("cpu", "2.13.0+cpu")),
        ("2.13.0", ["sympy"], Build("cpu", "2.13.0")),
        ("2.13.0", ["nvidia-cudnn-cu13", "triton"], Build("cuda", "2.13.0", 13)),
        ("2.13.0", ["nvidia-cublas"], Build("cuda", "2.13.0", None)),
        ("2.13.0+cu126", [], Build("cuda", "2.13.0+cu126", 12)),
        ("2.13.0+rocm7.2", [], Build("rocm", "2.13.0+rocm7.2")),
        ("2.13.0+xpu", [], Build("xpu", "2.13.0+xpu")),
    ],
)
def test_report_tells_the_build(version: str, others: list[str], expected: Build) -> None:
    assert torch_choice.read_report(report(version, *others), system="linux") == expected


def test_report_on_a_mac_is_the_mac_build() -> None:
    assert torch_choice.read_report(report("2.13.0"), system="darwin").kind == "macos"


def test_report_names_the_folder_of_a_local_wheel() -> None:
    build = torch_choice.read_report(report("2.13.0+cpu", url="file:///my%20wheels/torch.whl"), system="linux")
    assert build.folder == "/my wheels"


# ---------------------------------------------------------------- the choice


def test_cpu_machine_takes_what_its_own_sources_hold_and_asks_no_further() -> None:
    pip = FakePip(CPU)
    assert choose("cpu", pip, BUILDS).arguments == []
    assert pip.asked == ["own"]


def test_cpu_machine_prefers_the_public_cpu_index_to_a_cuda_build() -> None:
    choice = choose("cpu", FakePip(CUDA13, cpu=CPU), BUILDS)
    assert choice.build == CPU
    assert choice.arguments[:2] == ["--index-url", BUILDS["cpu"][0]["index"]]


def test_cpu_machine_refuses_a_cuda_build_with_its_size_and_the_words_to_type() -> None:
    with pytest.raises(NoBuild, match="about 3 GB") as caught:
        choose("cpu", FakePip(CUDA13), BUILDS)
    assert "ALLOW_CUDA=1" in str(caught.value)


def test_allow_cuda_takes_it() -> None:
    choice = choose("cpu", FakePip(CUDA13), BUILDS, allow_cuda=True)
    assert (choice.build, choice.arguments) == (CUDA13, [])
    assert "about 3 GB" in choice.notice


def test_nothing_to_be_had_repeats_what_pip_said() -> None:
    with pytest.raises(NoBuild, match="no matching distribution"):
        choose("cpu", FakePip("ERROR: no matching distribution"), BUILDS)


def test_cuda_machine_takes_the_package_indexs_own_build() -> None:
    assert choose("cuda", FakePip(CUDA13), BUILDS, driver=13).build == CUDA13


def test_cuda_machine_with_a_local_cpu_wheel_leaves_that_one_out() -> None:
    choice = choose("cuda", FakePip(CPU, plain=CUDA13), BUILDS, driver=13)
    assert choice.arguments == ["torch==2.13.0,!=2.13.0+cpu"]


def test_old_driver_gets_a_build_that_it_can_run() -> None:
    pip = FakePip(CUDA13, cu126=CUDA12, cu130=CUDA13)
    assert choose("cuda", pip, BUILDS, driver=12).build == CUDA12
    assert "cu130" not in pip.asked


def test_accelerator_without_its_build_falls_back_to_cpu_and_says_so() -> None:
    choice = choose("rocm", FakePip(CUDA13, cpu=CPU), BUILDS)
    assert choice.build == CPU
    assert "no rocm build" in choice.notice


def test_rocm_machine_takes_the_rocm_index() -> None:
    assert choose("rocm", FakePip(CUDA13, rocm7_2=ROCM), BUILDS).build == ROCM


def test_forced_index_by_name_kind_or_address() -> None:
    assert torch_choice.forced("cu126", BUILDS) == ["--index-url", BUILDS["cuda"][1]["index"]]
    assert torch_choice.forced("cuda", BUILDS) == ["--index-url", BUILDS["cuda"][0]["index"]]
    assert torch_choice.forced("https://mirror.example/simple", BUILDS)[1] == "https://mirror.example/simple"
    with pytest.raises(NoBuild, match="neither an address nor one of: cpu, cu126"):
        torch_choice.forced("cu999", BUILDS)


def test_ask_pip_reads_a_real_pips_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    answer = torch_choice.ask_pip(sys.executable, "torch==0.0.1")([])
    assert isinstance(answer, str)
    assert "torch==0.0.1" in answer


# ---------------------------------------------------------------- the machine


def plant(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("0x8086\n")
    return root


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], "cpu"),
        (["proc/driver/nvidia/gpus/0000:01:00.0/information"], "cuda"),
        (["dev/nvidia0"], "cuda"),
        (["dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"], "cuda"),
        (["dev/dxg"], "cpu"),
        (["dev/kfd"], "rocm"),
        # A toolkit without a card is no accelerator; nor is a render node without its driver.
        (["opt/rocm/bin/rocminfo", "usr/bin/nvidia-smi"], "cpu"),
        (["sys/class/drm/renderD128/device/vendor"], "cpu"),
    ],
)
def test_accelerator_is_told_by_its_driver(tmp_path: Path, paths: list[str], expected: str) -> None:
    assert machine.accelerator(plant(tmp_path, *paths), system="Linux") == expected


@pytest.mark.parametrize(("driver", "expected"), [("xe", "xpu"), ("i915", "cpu")])
def test_intel_gpu_is_told_by_its_kernel_driver(tmp_path: Path, driver: str, expected: str) -> None:
    plant(tmp_path, "sys/class/drm/renderD128/device/vendor")
    (tmp_path / "drivers" / driver).mkdir(parents=True)
    (tmp_path / "sys/class/drm/renderD128/device/driver").symlink_to(tmp_path / "drivers" / driver)
    assert machine.accelerator(tmp_path, system="Linux") == expected


def test_a_mac_is_a_mac() -> None:
    assert machine.accelerator(Path("/nowhere"), system="Darwin") == "macos"


def test_driver_version() -> None:
    assert machine.driver_cuda("| NVIDIA-SMI 550.54   Driver Version: 550.54   CUDA Version: 12.4 |") == 12
    assert machine.driver_cuda("no devices were found") is None
    assert machine.driver_cuda(None) is None


@pytest.mark.parametrize(
    ("os_release", "system", "expected"),
    [
        ("ID=debian\n", "Linux", "debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "Linux", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "Linux", "fedora"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "Linux", "suse"),
        ("ID=nixos\n", "Linux", "other"),
        ("", "Darwin", "macos"),
    ],
)
def test_os_family(os_release: str, system: str, expected: str) -> None:
    assert machine.os_family(os_release, system) == expected


def test_missing_programs_are_named_with_the_line_to_type() -> None:
    lacks = machine.missing(["compiler", "openssl"], sys.executable, which=lambda _name: None)
    assert [lack.need for lack in lacks] == ["compiler", "openssl"]
    assert machine.mending(lacks, "debian", "3.11").startswith("apt-get install g++ openssl")
    assert machine.mending(lacks, "fedora", "3.11").startswith("dnf install gcc-c++ openssl")
    assert machine.mending(lacks, "macos", "3.11") == "xcode-select --install"
    assert "compiler, openssl" in machine.mending(lacks, "other", "3.11")


def test_missing_headers_and_venv_are_found_by_asking_the_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$2" in *sysconfig*) echo /nowhere;; *) exit 1;; esac\n')
    python.chmod(0o755)
    lacks = machine.missing(["headers", "venv"], str(python))
    assert machine.mending(lacks, "debian", "3.12").startswith("apt-get install python3.12-dev python3.12-venv")


# ---------------------------------------------------------------- the environment


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with its set-up pointed at it, and none of the caller's words in the environment."""
    for name in ("HOST", "LIMIT", "PYTHON", "TORCH_INDEX", "ALLOW_CUDA", "ANYWAY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "requirements").mkdir()
    for name in ("build", "core", "dev"):
        (tmp_path / "requirements" / f"{name}.lock").write_text(f"# {name}\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setattr(setup_env, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup_env, "STAMPS", tmp_path / ".venv" / ".setup")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /somewhere\nversion = 3.11.7\n")
    return tmp_path


def pretend_installed(clone: Path, part: str) -> None:
    folder = clone / ".venv/lib/python3.11/site-packages" / setup_env.WITNESSES[part]
    folder.mkdir(parents=True, exist_ok=True)
    (clone / ".venv/.setup").mkdir(exist_ok=True)
    (clone / ".venv/.setup" / part).write_text(setup_env.stamp_key(part))


def test_a_stamp_holds_until_the_lock_the_python_or_the_packages_change(clone: Path) -> None:
    pretend_installed(clone, "dev")
    assert setup_env.is_ready("dev")
    (clone / "requirements/dev.lock").write_text("# newer\n")
    assert not setup_env.is_ready("dev")
    pretend_installed(clone, "dev")
    (clone / ".venv/pyvenv.cfg").write_text("version = 3.12.1\n")
    assert not setup_env.is_ready("dev")
    pretend_installed(clone, "dev")
    shutil.rmtree(clone / ".venv/lib")
    assert not setup_env.is_ready("dev")


def test_a_broken_interpreter_is_no_environment(clone: Path) -> None:
    assert setup_env.venv_version() == "3.11.7"
    (clone / ".venv/bin/python").unlink()
    (clone / ".venv/bin/python").symlink_to("/gone/python")
    assert setup_env.venv_version() == ""


def test_second_set_up_does_nothing(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_env, "act", lambda *_: pytest.fail("something was run"))
    for part in ("core", "dev", "torch"):
        pretend_installed(clone, part)
    setup_env.set_up("test")


def test_set_up_names_what_is_missing_before_it_loads_anything(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(clone))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine, "os_family", lambda: "debian")
    monkeypatch.setattr(setup_env, "act", lambda *_: pytest.fail("something was run"))
    assert setup_env.main(["test"]) == 2
    said = capsys.readouterr().err
    assert "a C++ compiler" in said
    assert "apt-get install g++" in said
    assert "sudo" not in said


def test_a_failed_step_shows_its_last_lines(clone: Path) -> None:
    with pytest.raises(setup_env.SetupError, match=r"trying failed \(exit 3\):\n  sorry"):
        setup_env.act(["sh", "-c", "echo sorry; exit 3"], "trying")


def test_a_step_has_a_deadline(clone: Path) -> None:
    with pytest.raises(setup_env.SetupError, match="did not end"):
        setup_env.act(["sleep", "60"], "sleeping", seconds=0.1)


@pytest.mark.parametrize("host", ["localhost", "localhost/native"])
def test_localhost_needs_torch(clone: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("HOST", host)
    assert setup_env.probes_this_computer()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, True),
        ({"HOST": "far"}, False),
        ({"HOST": "here"}, True),
        ({"LIMIT": "far"}, False),
        ({"HOST": "no"}, False),
    ],
)
def test_torch_is_needed_where_a_local_host_is_selected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: dict[str, str], expected: bool
) -> None:
    for name in ("HOST", "LIMIT"):
        monkeypatch.delenv(name, raising=False)
    for name, word in words.items():
        monkeypatch.setenv(name, word)
    (tmp_path / "hosts.yaml").write_text("hosts:\n  here: {transport: local}\n  far: {address: far.example}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(setup_env, "venv_python", lambda: sys.executable)
    assert setup_env.probes_this_computer() is expected


def test_uv_is_told_where_torch_came_from(clone: Path) -> None:
    setup_env.tell_uv("/my wheels", [])
    assert 'find-links = ["/my wheels"]' in (clone / "uv.toml").read_text()
    setup_env.tell_uv(None, ["--index-url", "https://mirror.example/whl/cpu"])
    assert 'find-links = ["https://mirror.example/whl/cpu/torch/"]' in (clone / "uv.toml").read_text()
    setup_env.tell_uv(None, [])
    assert not (clone / "uv.toml").exists()


# ---------------------------------------------------------------- the shell and make


def fake_path(folder: Path, **programs: str) -> str:
    """A PATH with a few plain programs and the given scripts, and nothing else."""
    for name in ("sh", "dirname", "uname", "awk", "test"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def run_setup(path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = ["/bin/sh", str(ROOT / "tools/setup.sh"), "core"]
    return subprocess.run(argv, env={"PATH": path, **environment}, capture_output=True, text=True, timeout=30)


OLD = 'case "$1" in --version) echo Python 3.6.15;; *) exit 1;; esac'
NEW = 'case "$1" in -c) exit 0;; *) echo "ran $0 $2";; esac'


def test_setup_says_that_python_is_too_old(tmp_path: Path) -> None:
    done = run_setup(fake_path(tmp_path, python3=OLD))
    assert done.returncode == 2
    assert "this computer's Python 3.6.15 is too old; the harness needs Python 3.10" in done.stderr


def test_setup_says_that_there_is_no_python(tmp_path: Path) -> None:
    done = run_setup(fake_path(tmp_path))
    assert done.returncode == 2
    assert "neither python3 nor uv is on PATH" in done.stderr


def test_setup_finds_a_newer_python_beside_an_old_one(tmp_path: Path) -> None:
    done = run_setup(fake_path(tmp_path, python3=OLD, **{"python3.12": NEW}))
    assert done.stdout.startswith(f"ran {tmp_path}/python3.12")


def test_setup_takes_uv_where_there_is_no_python(tmp_path: Path) -> None:
    assert run_setup(fake_path(tmp_path, uv='echo "uv $*"')).stdout.startswith("uv run --no-project --python >=3.10")


def test_setup_uses_the_python_that_was_named_or_none(tmp_path: Path) -> None:
    path = fake_path(tmp_path, python3=NEW, mine=NEW, old=OLD)
    assert run_setup(path, PYTHON="mine").stdout.startswith(f"ran {tmp_path}/mine")
    done = run_setup(path, PYTHON="old")
    assert done.returncode == 2
    assert "PYTHON=old does not run or is older" in done.stderr


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with our Makefile, where set-up does nothing and the harness prints its words."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/setup.sh").write_text("exit 0\n")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness/__main__.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    return tmp_path


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Without MAKEFLAGS: the tests themselves may run under make.
    clean = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["make", *arguments], cwd=folder, env=clean, capture_output=True, text=True, timeout=60)


HOSTILE = [
    "$(shell touch pwned)",
    "`touch pwned`",
    "$$(touch pwned)",
    "a; touch pwned",
    "a b\"'\\ $HOME",
    "-x",
    "#a",
    "é*",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_words_reach_the_harness_untouched_and_nothing_in_them_runs(made: Path, word: str) -> None:
    done = make(made, "probe", f"HOST={word}", f"DEVICE={word}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["probe", f"--device={word}", "--", word]
    assert not (made / "pwned").exists()


def test_a_hostile_python_is_a_name_that_is_not_found(made: Path) -> None:
    shutil.copy(ROOT / "tools/setup.sh", made / "tools/setup.sh")
    done = make(made, "plan", "PYTHON=$(shell touch pwned)")
    assert done.returncode != 0
    assert "PYTHON=$(shell touch pwned) does not run" in done.stderr
    assert not (made / "pwned").exists()


def test_host_from_the_environment_is_not_a_choice(made: Path) -> None:
    done = make(made, "probe", HOST="this-computer")
    assert done.returncode != 0
    assert "say which host: make probe HOST=localhost" in done.stderr


def test_targets_pass_their_words_on(made: Path) -> None:
    assert json.loads(make(made, "probe-all", "FUNCTION=matmul").stdout) == ["probe", "--all", "--function=matmul"]
    assert json.loads(make(made, "plan").stdout) == ["plan"]
    assert json.loads(make(made, "probe", "LIMIT=a,b").stdout) == ["probe", "--limit=a,b"]
    assert json.loads(make(made, "report", "RUN=x").stdout) == ["report", "--", "x"]


def test_help_is_the_default_and_names_every_target(made: Path) -> None:
    done = make(made)
    for target in ("probe", "probe-all", "demo", "report", "plan", "test", "lint", "bench", "help", "system-deps"):
        assert f"make {target} " in done.stdout
