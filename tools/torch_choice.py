"""Which build of torch to install here, asked of pip and never guessed.

pip is asked first, without an index of ours: its configuration, a wheel folder or a mirror may hold
the right build already, and on many networks nothing else can be reached.  What it would install is
read from its report (metadata only, nothing is downloaded).  Only if that build does not fit the
machine are the public indexes of torch_builds.json tried.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BUILDS_FILE = Path(__file__).with_name("torch_builds.json")


class Build(NamedTuple):
    """What pip would install: `kind` is cpu, cuda, rocm, xpu or macos; `cuda` its major version.

    `folder` is the local folder that holds the wheel, where it comes from one.
    """

    kind: str
    version: str
    cuda: int | None = None
    folder: str | None = None


class Choice(NamedTuple):
    """The pip arguments that install the build, and a sentence where it is not the one that was wished for."""

    build: Build
    arguments: list[str]
    notice: str = ""


class NoBuild(Exception):
    """No build of torch can or may be installed; the text says why and what to type."""


# arguments -> the build that pip would install with them, or the text of pip's refusal
Ask = Callable[[Sequence[str]], Build | str]


def load_builds(path: Path = BUILDS_FILE) -> dict[str, list[dict[str, Any]]]:
    """The table of public indexes, by kind of build."""
    table: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return table


def read_report(report: dict[str, Any], system: str = sys.platform) -> Build:
    """The build in a pip installation report, told by its local version and by what it pulls in."""
    packages = {item["metadata"]["name"].lower(): item for item in report["install"]}
    version = packages["torch"]["metadata"]["version"]
    url = urllib.parse.urlsplit(packages["torch"]["download_info"]["url"])
    folder = str(Path(urllib.parse.unquote(url.path)).parent) if url.scheme == "file" else None
    local = version.partition("+")[2]
    if system == "darwin":
        return Build("macos", version, folder=folder)
    for kind in ("cpu", "rocm", "xpu"):
        if local.startswith(kind):
            return Build(kind, version, folder=folder)
    majors = [re.match(r"cu(\d+)\d$", local), *(re.search(r"-cu(\d+)$", name) for name in packages)]
    found = [int(match.group(1)) for match in majors if match]
    if found or any(name.startswith("nvidia-") for name in packages):
        return Build("cuda", version, max(found, default=None), folder)
    return Build("cpu", version, folder=folder)


def ask_pip(python: str, requirement: str, seconds: float = 240.0) -> Ask:
    """A function that asks `python`'s pip what it would install for `requirement`."""

    def ask(arguments: Sequence[str]) -> Build | str:
        # --ignore-installed: a dependency that is here already must not hide what the build pulls in.
        argv = [python, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--only-binary", "torch"]
        argv += ["--report", "-", *arguments]
        if not any(word.startswith("torch==") for word in arguments):
            argv.append(requirement)
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return f"pip did not answer in {seconds:.0f} s"
        if done.returncode != 0:
            errors = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if "ERROR" in line]
            return "; ".join(errors[:2]) if errors else f"pip ended with {done.returncode}"
        return read_report(json.loads(done.stdout))

    return ask


def index_arguments(index: str) -> list[str]:
    """pip arguments for one index; no retries, because an index that cannot be reached is skipped."""
    return ["--index-url", index, "--retries", "0", "--timeout", "10"]


def fits(build: Build, wanted: str, driver: int | None) -> bool:
    """Whether a build is of the wanted kind and, for CUDA, not newer than the driver."""
    if build.kind != wanted:
        return False
    return wanted != "cuda" or driver is None or build.cuda is None or build.cuda <= driver


def forced(name: str, builds: dict[str, list[dict[str, Any]]]) -> list[str]:
    """pip arguments for TORCH_INDEX: the name of a build in the table, or an address."""
    known = {entry["name"]: entry["index"] for entries in builds.values() for entry in entries}
    known.update({kind: entries[0]["index"] for kind, entries in builds.items()})
    if "://" not in name and name not in known:
        raise NoBuild("TORCH_INDEX={!r} is neither an address nor one of: {}".format(name, ", ".join(sorted(known))))
    return ["--index-url", known.get(name, name)]


def choose(
    wanted: str,
    ask: Ask,
    builds: dict[str, list[dict[str, Any]]],
    driver: int | None = None,
    allow_cuda: bool = False,
) -> Choice:
    """The build to install on a machine that wants `wanted` (cpu, cuda, rocm, xpu or macos).

    A machine with an accelerator whose build cannot be had gets a CPU build and a notice.  A machine
    without an NVIDIA GPU gets a CUDA build only with `allow_cuda`.  Raises NoBuild.
    """
    own = ask([])
    if isinstance(own, Build) and fits(own, wanted, driver):
        return Choice(own, [])
    refusals = [own] if isinstance(own, str) else []
    if wanted == "cuda" and isinstance(own, Build) and own.kind == "cpu":
        # A local CPU wheel sorts above the plain one of the package index; leave exactly that one out.
        exclude = ["torch=={},!={}".format(own.version.partition("+")[0], own.version)]
        other = ask(exclude)
        if isinstance(other, Build) and fits(other, wanted, driver):
            return Choice(other, exclude)
    for entry in builds.get(wanted, []):
        if wanted == "cuda" and driver is not None and entry["driver"] > driver:
            continue
        answer = ask(index_arguments(entry["index"]))
        if isinstance(answer, Build) and fits(answer, wanted, driver):
            return Choice(answer, index_arguments(entry["index"]))
    if wanted in ("cuda", "rocm", "xpu"):
        notice = (
            f"no {wanted} build of torch that fits could be had; taking another, so the accelerator will be"
            f" reported as blocked.  To name an index: make clean, then TORCH_INDEX={wanted} or an address"
        )
        return choose("cpu", ask, builds, driver, allow_cuda)._replace(notice=notice)
    if isinstance(own, Build) and own.kind == "cuda":
        size = builds["cuda"][0]["size"]
        if not allow_cuda:
            raise NoBuild(
                f"only a CUDA build of torch can be had here ({own.version}: {size}),\n"
                "and this machine has no NVIDIA GPU that it fits.  To take it all the same, add ALLOW_CUDA=1.\n"
                "If you know where a CPU build lies, add TORCH_INDEX=ADDRESS or set PIP_FIND_LINKS to its folder."
            )
        return Choice(own, [], f"taking a CUDA build ({size}), as ALLOW_CUDA=1 asks")
    reason = refusals[0] if refusals else f"pip offers {own}"
    raise NoBuild(f"no build of torch can be had here for this Python: {reason}")
