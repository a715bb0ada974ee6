"""Make .venv and put into it what a make target needs; say in words what is missing.

    setup.sh core          the harness
    setup.sh dev           and the test and lint tools
    setup.sh probe         and torch, if this computer is among the hosts that HOST, LIMIT or --all select
    setup.sh torch         the harness and torch
    setup.sh predict       and Triton, on Linux
    setup.sh test          everything
    setup.sh system-deps   Debian's packages; installs them only where it runs as root

A part that was installed leaves a stamp in .venv/.setup; the stamp holds a hash of the part's lock
file, the Python and the folder, so a second run costs one look.  Everything but torch comes from the
lock files with hashes; torch depends on the machine and is chosen in torch_choice.py.

venv and pip do the work even where uv is there: pip reads the user's own configuration (mirrors,
wheel folders), which uv does not, and one way is tested better than two.  uv makes the environment
only where Python came without its venv module.

Environment: PYTHON, HOST, LIMIT, TORCH_INDEX, ALLOW_CUDA, ANYWAY.  Exit codes: 0 ready, 2 not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import machine
import torch_choice

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMPS = VENV / ".setup"
PARTS = {
    "core": ("core",),
    "dev": ("core", "dev"),
    "probe": ("core", "torch?"),
    "torch": ("core", "torch"),
    "predict": ("core", "torch", "triton"),
    "test": ("core", "dev", "torch"),
}
# A folder that is in the environment while the part is.
WITNESSES = {"core": "fabric", "dev": "pytest", "torch": "torch", "triton": "triton"}
# No step may hang: seconds for a step that only installs small packages, and for one that loads torch.
SMALL, LARGE = 900, 3600

# Runs in .venv, where the harness can be imported; prints yes or no.
_LOCAL_HOSTS = """
import sys
from pathlib import Path
from harness import inventory
hosts = inventory.load(Path("hosts.yaml"))
chosen = inventory.select(hosts, sys.argv[1:]) if sys.argv[1:] else hosts.hosts
print("yes" if any(host.transport == "local" for host in chosen) else "no")
"""


class SetupError(Exception):
    """The environment cannot be made; the text says why and what to type."""


def say(text: str) -> None:
    """One line to the person who typed make; standard output stays the target's own."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def act(argv: Sequence[str], what: str, seconds: float = SMALL) -> None:
    """Run one step; raises SetupError with the last lines of what it printed."""
    try:
        done = subprocess.run(
            list(argv), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SetupError(f"{what} did not end in {seconds:.0f} s") from None
    except OSError as error:
        raise SetupError(f"{what} could not start: {error}") from None
    if done.returncode != 0:
        tail = done.stdout.decode("utf-8", "replace").strip().splitlines()[-12:]
        raise SetupError(f"{what} failed (exit {done.returncode}):\n  " + "\n  ".join(tail))


@contextlib.contextmanager
def alone(seconds: float = LARGE) -> Iterator[None]:
    """Keep a second make out of the same environment; the lock goes with this process."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        deadline, told = time.monotonic() + seconds, False
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SetupError(
                        "another make has been setting up .venv for an hour; end it and try again"
                    ) from None
                if not told:
                    say("another make is setting up .venv; waiting for it")
                    told = True
                time.sleep(0.5)
        yield
    finally:
        os.close(folder)


# ---------------------------------------------------------------- the environment


def venv_python() -> str:
    """The environment's interpreter, whether or not it is there yet."""
    return str(VENV / "bin" / "python")


def venv_version() -> str:
    """The environment's Python as its own file states it, e.g. 3.11.7; empty where there is none."""
    config = VENV / "pyvenv.cfg"
    if not config.is_file() or not Path(venv_python()).exists():
        return ""
    match = re.search(r"^version(?:_info)?\s*=\s*([0-9.]+)", config.read_text(encoding="utf-8"), flags=re.M)
    return match.group(1) if match else ""


def minor(version: str) -> str:
    """3.11 of 3.11.7."""
    return ".".join(version.split(".")[:2])


def stamp_key(part: str) -> str:
    """What the part's stamp holds while it is up to date."""
    digest = hashlib.sha256(f"{ROOT}\n{venv_version()}\n".encode())
    for name in {"core": ("build", "core"), "dev": ("dev",)}.get(part, ()):
        digest.update((ROOT / "requirements" / f"{name}.lock").read_bytes())
    if part == "core":
        digest.update((ROOT / "pyproject.toml").read_bytes())
    if part == "torch":
        digest.update(f"{wanted_torch()} {os.environ.get('TORCH_INDEX', '')}".encode())
    return digest.hexdigest()


def is_ready(part: str) -> bool:
    """Whether the part's stamp is there and fresh, and a package of it too: `uv sync` removes what it does not know."""
    stamp = STAMPS / part
    if not venv_version() or not stamp.is_file() or stamp.read_text(encoding="ascii") != stamp_key(part):
        return False
    return any(VENV.glob(f"lib/python3*/site-packages/{WITNESSES[part]}"))


def make_venv() -> None:
    """Make .venv with pip in it, or take the one that is there if it runs."""
    asked = os.environ.get("PYTHON")
    version = venv_version()
    if version and (not asked or minor(version) == minor(platform.python_version())):
        alive = machine.ask([venv_python(), "-c", "import sys; print(sys.version_info >= (3, 10))"])
        if alive == "True" and machine.ask([venv_python(), "-m", "pip", "--version"]):
            return
    say(f"making .venv with Python {platform.python_version()} ({sys.executable})")
    uv = shutil.which("uv")
    if not machine.missing(["venv"], sys.executable):
        act([sys.executable, "-m", "venv", "--clear", str(VENV)], "making .venv", SMALL)
    elif uv:
        act([uv, "venv", "--clear", "--seed", "--python", sys.executable, str(VENV)], "making .venv with uv", SMALL)
    else:
        refuse(machine.missing(["venv"], sys.executable))


def refuse(lacks: Sequence[machine.Missing]) -> None:
    """Raises SetupError that names what is missing and the line to type."""
    words = "\n".join(f"  - {lack.words}" for lack in lacks)
    line = machine.mending(lacks, machine.os_family(), minor(platform.python_version()))
    raise SetupError(f"this computer lacks:\n{words}\ntype:\n  {line}")


def check_machine(parts: Sequence[str]) -> None:
    """Before anything is loaded: can the environment be made, and can Inductor build kernels here?"""
    lacks: list[machine.Missing] = []
    if not venv_version() and not shutil.which("uv"):
        lacks += machine.missing(["venv"], sys.executable)
    if "torch" in parts and not os.environ.get("ANYWAY"):
        # The environment shares the headers of the Python it was made with.
        python = venv_python() if venv_version() else sys.executable
        lacks += machine.missing(["compiler", "headers", "openssl"], python)
    if lacks:
        try:
            refuse(lacks)
        except SetupError as error:
            hint = "\nor add ANYWAY=1: the probe then reports what is missing" if "torch" in parts else ""
            raise SetupError(f"{error}{hint}") from None


# ---------------------------------------------------------------- the parts


def pip(arguments: Sequence[str], what: str, seconds: float = SMALL) -> None:
    """Install with the environment's own pip; quiet, no questions."""
    quiet = ["--quiet", "--no-input", "--progress-bar", "off", "--disable-pip-version-check"]
    act([venv_python(), "-m", "pip", "install", *quiet, *arguments], what, seconds)


def locked(name: str) -> list[str]:
    """pip arguments for one lock file."""
    return ["--require-hashes", "-r", str(ROOT / "requirements" / f"{name}.lock")]


def install_core() -> None:
    """The harness with its dependencies, and the command `atlas`."""
    say("installing the harness's dependencies (once, about half a minute)")
    pip(locked("build"), "installing pip and the build backend")
    pip(locked("core"), "installing the harness's dependencies")
    pip(["--no-deps", "--no-build-isolation", "--editable", str(ROOT)], "installing the command atlas")


def install_dev() -> None:
    """Test and lint tools."""
    say("installing the test tools")
    pip(locked("dev"), "installing the test tools")


def wanted_torch() -> str:
    """The tested torch, as pyproject.toml's dependency group `probe` pins it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^probe = \["torch==([^"]+)"\]', text, flags=re.M)
    if match is None:
        raise SetupError("pyproject.toml: the dependency group `probe` does not pin torch; write torch==VERSION")
    return match.group(1)


def installed(package: str) -> str:
    """The version of a package in the environment, empty if it is not there."""
    code = f"import importlib.metadata as m; print(m.version('{package}'))"
    return machine.ask([venv_python(), "-c", code]) or ""


def install_torch() -> None:
    """The build of torch that fits this machine; one that is there already is kept."""
    index, version = os.environ.get("TORCH_INDEX", ""), wanted_torch()
    here = installed("torch")
    if here and not index:
        if here.partition("+")[0] != version:
            say(f"keeping torch {here}, which is in .venv already (tested: {version}); make clean starts afresh")
        return
    builds = torch_choice.load_builds()
    folder = None
    if index:
        arguments, notice = torch_choice.forced(index, builds), ""
        label = f"torch {version} from TORCH_INDEX={index}"
    else:
        wanted = machine.accelerator()
        driver = machine.driver_cuda(machine.ask(["nvidia-smi"])) if wanted == "cuda" else None
        say(f"looking for torch {version} for this machine ({wanted})")
        choice = torch_choice.choose(
            wanted, torch_choice.ask_pip(venv_python(), f"torch=={version}"), builds,
            driver=driver, allow_cuda=bool(os.environ.get("ALLOW_CUDA")),
        )  # fmt: skip
        arguments, notice, folder = choice.arguments, choice.notice, choice.build.folder
        label = f"torch {choice.build.version} ({choice.build.kind})"
    if notice:
        say(notice)
    say(f"installing {label}; this is the large one")
    named = [] if any(word.startswith("torch==") for word in arguments) else [f"torch=={version}"]
    force = ["--force-reinstall"] if here else []
    pip(["--only-binary", "torch", *force, *arguments, *named], f"installing {label}", LARGE)
    tell_uv(folder, arguments)


def tell_uv(folder: str | None, arguments: Sequence[str]) -> None:
    """Write uv.toml, so that `uv run` in this clone keeps the torch that is here.

    uv reads nothing of pip's configuration: it would put the package index's own build, on Linux
    CUDA's gigabytes, in the place of one that came from a wheel folder or another index.
    """
    links = folder
    if links is None and "--index-url" in arguments:
        links = arguments[list(arguments).index("--index-url") + 1].rstrip("/") + "/torch/"
    settings = ROOT / "uv.toml"
    if links is not None:
        comment = "# Written by make: where this machine's torch came from. Not for git."
        settings.write_text(f"{comment}\nfind-links = [{json.dumps(links)}]\n", encoding="utf-8")
    else:
        settings.unlink(missing_ok=True)


def install_triton() -> None:
    """Triton writes kernels for absent GPUs; it has no macOS build, and most CUDA builds bring it."""
    if sys.platform == "linux" and not installed("triton"):
        say("installing Triton")
        pip(["--only-binary", "triton", "triton"], "installing Triton", LARGE)


INSTALLERS = {"core": install_core, "dev": install_dev, "torch": install_torch, "triton": install_triton}


def probes_this_computer() -> bool:
    """Whether HOST and LIMIT select a host of transport local; nothing selected means all."""
    words = [os.environ[name] for name in ("HOST", "LIMIT") if os.environ.get(name)]
    if words and words[0].partition("/")[0] == "localhost":
        return True
    # A fault in hosts.yaml is the harness's to report, with line and column.
    return machine.ask([venv_python(), "-c", _LOCAL_HOSTS, *words], seconds=60) == "yes"


def ensure(part: str) -> None:
    """Install one part unless its stamp says that it is there."""
    if is_ready(part):
        return
    if part == "core":
        make_venv()
    INSTALLERS[part]()
    STAMPS.mkdir(exist_ok=True)
    (STAMPS / part).write_text(stamp_key(part), encoding="ascii")


def set_up(profile: str) -> None:
    """Everything of a profile, in order; raises SetupError or torch_choice.NoBuild."""
    parts = list(PARTS[profile])
    asked = os.environ.get("PYTHON")
    if asked and venv_version() and minor(venv_version()) != minor(platform.python_version()):
        shutil.rmtree(STAMPS, ignore_errors=True)  # PYTHON names another one: make_venv starts afresh
    with alone():
        certain = [part for part in parts if part != "torch?"]
        if not all(is_ready(part) for part in certain):
            check_machine(certain)
        for part in certain:
            ensure(part)
        if "torch?" in parts and probes_this_computer():
            check_machine(["torch"])
            ensure("torch")


def system_deps() -> int:
    """Install Debian's packages where this runs as root; else print the line.  0 if nothing is missing."""
    if machine.os_family() != "debian":
        print("system-deps knows Debian and Ubuntu. Elsewhere, install: OpenSSH server and client, a C++ compiler,")
        print("the Python headers, openssl and Chromium. On macOS all but Chromium come with: xcode-select --install")
        return 2
    lacking = machine.missing_packages()
    if not lacking:
        print("system-deps: all there")
        return 0
    line = ["apt-get", "install", "--yes", "--no-install-recommends", *lacking]
    print(" ".join(line), flush=True)
    if os.geteuid() != 0:
        print("Type this line as root; this program does not call sudo.", flush=True)
        return 2
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["apt-get", "update", "--quiet"], [*line, "--quiet"]):
        subprocess.run(argv, stdin=subprocess.DEVNULL, env=environment, timeout=SMALL, check=True)
    return 0


def main(arguments: Sequence[str]) -> int:
    """The exit code of one call; see the module's text."""
    if list(arguments) == ["system-deps"]:
        return system_deps()
    if len(arguments) != 1 or arguments[0] not in PARTS:
        say(f"usage: tools/setup.sh {' | '.join([*PARTS, 'system-deps'])}")
        return 2
    try:
        set_up(arguments[0])
    except (SetupError, torch_choice.NoBuild) as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("interrupted; the next make goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
