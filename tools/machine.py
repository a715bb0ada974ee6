"""What this machine is and what it lacks.  Standard library only; nothing here changes anything.

A missing program is named together with the exact line that installs it on this system.  Nothing
calls sudo: who may become root, and how, is the owner's business.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

# What `make system-deps` installs: everything that a full test run can use.  The second group is for the
# tests of containers alone: two engines, a registry, and the tool that makes a base image without one.
DEBIAN_PACKAGES = (
    "openssh-server",
    "openssh-client",
    "g++",
    "python3-dev",
    "python3-venv",
    "openssl",
    "chromium",
    "fonts-dejavu-core",
)
CONTAINER_PACKAGES = (
    "docker.io",
    "iptables",
    "mmdebstrap",
    "podman",
    "crun",
    "runc",
    "fuse-overlayfs",
    "netavark",
    "aardvark-dns",
    "slirp4netns",
    "uidmap",
    "catatonit",
    "docker-registry",
)

# The package behind each need, and the command that installs packages, by family of systems.
# {minor} is the interpreter's, e.g. 3.11: a Python beside the system's default has its own packages.
_PACKAGES: dict[str, dict[str, str]] = {
    "debian": {"compiler": "g++", "headers": "python{minor}-dev", "venv": "python{minor}-venv", "openssl": "openssl"},
    "fedora": {"compiler": "gcc-c++", "headers": "python{minor}-devel", "venv": "python3-pip", "openssl": "openssl"},
    "suse": {"compiler": "gcc-c++", "headers": "python3-devel", "venv": "python3-pip", "openssl": "openssl"},
    "arch": {"compiler": "gcc", "headers": "python", "venv": "python", "openssl": "openssl"},
}
_INSTALL = {
    "debian": "apt-get install {}",
    "fedora": "dnf install {}",
    "suse": "zypper install {}",
    "arch": "pacman -S {}",
}
_WORDS = {
    "compiler": "a C++ compiler ({}): Inductor builds its CPU kernels with it",
    "headers": "the Python headers (Python.h) of {}: Inductor's C++ wrapper includes them",
    "venv": "the venv module of {}: the environment is made with it",
    "openssl": "the openssl program: Inductor's header cache calls it",
}
FAMILIES = ("debian", "fedora", "suse", "arch")


class Missing(NamedTuple):
    """One thing that is not here: `need` is a key of the tables above, `words` says it to a person."""

    need: str
    words: str


def os_family(os_release: str | None = None, system: str | None = None) -> str:
    """`macos`, one of FAMILIES, or `other`; the arguments stand in for this machine's own."""
    if (system or platform.system()) == "Darwin":
        return "macos"
    if os_release is None:
        path = Path("/etc/os-release")
        os_release = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    words = " ".join(re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', os_release, flags=re.M)).split()
    known = {"ubuntu": "debian", "rhel": "fedora", "centos": "fedora", "opensuse": "suse", "sles": "suse"}
    for word in words:
        family = known.get(word, word)
        if family in FAMILIES:
            return family
    return "other"


def ask(argv: Sequence[str], seconds: float = 20.0) -> str | None:
    """The output of a short command, or None where it is missing, fails or takes too long."""
    try:
        done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


def compiler_name() -> str:
    """The C++ compiler that Inductor would call."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def missing(needs: Sequence[str], python: str, which: Callable[[str], str | None] = shutil.which) -> list[Missing]:
    """Those of `needs` (compiler, headers, openssl, venv) that `python` or PATH does not have."""
    found = []
    for need in needs:
        if need == "compiler" and which(compiler_name()) is None:
            found.append(Missing(need, _WORDS[need].format(compiler_name())))
        elif need == "openssl" and which("openssl") is None:
            found.append(Missing(need, _WORDS[need]))
        elif need == "headers":
            folder = ask([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"])
            if not folder or not (Path(folder) / "Python.h").is_file():
                found.append(Missing(need, _WORDS[need].format(python)))
        elif need == "venv" and ask([python, "-c", "import ensurepip, venv"]) is None:
            found.append(Missing(need, _WORDS[need].format(python)))
    return found


def mending(lacks: Sequence[Missing], family: str, minor: str) -> str:
    """The line to type on a system of this family; `minor` is the interpreter's version, e.g. 3.11."""
    if family == "macos":
        return "xcode-select --install"
    if family not in _INSTALL:
        return "install with this system's package manager: " + ", ".join(sorted({lack.need for lack in lacks}))
    names = sorted({_PACKAGES[family][lack.need].format(minor=minor) for lack in lacks})
    return _INSTALL[family].format(" ".join(names)) + "      (as root)"


def driver_cuda(text: str | None) -> int | None:
    """The major CUDA version that the driver supports, from what nvidia-smi prints; None if unknown."""
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)", text or "")
    return int(match.group(1)) if match else None


def accelerator(root: Path = Path("/"), system: str | None = None) -> str:
    """`cuda`, `rocm`, `xpu`, `macos` or `cpu`: the build of torch that fits this machine.

    It looks for kernel drivers, not for toolkits: a CUDA or ROCm toolkit is often installed where no card is.
    """
    if (system or platform.system()) == "Darwin":
        return "macos"
    gpus = root / "proc/driver/nvidia/gpus"
    # WSL 2 has no /proc/driver/nvidia; its driver shows itself as /dev/dxg with a library beside it.
    wsl = (root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists()
    if (gpus.is_dir() and any(gpus.iterdir())) or (root / "dev/nvidia0").exists() or wsl:
        return "cuda"
    if (root / "dev/kfd").exists():
        return "rocm"
    for vendor in sorted(root.glob("sys/class/drm/renderD*/device/vendor")):
        driver = vendor.parent / "driver"
        # Integrated graphics of any age use i915 too; only `xe` and discrete cards run torch's XPU build.
        if vendor.read_text().strip() == "0x8086" and driver.exists() and driver.resolve().name == "xe":
            return "xpu"
    return "cpu"


def missing_packages(packages: Sequence[str] = DEBIAN_PACKAGES + CONTAINER_PACKAGES) -> list[str]:
    """Those Debian packages that dpkg does not have fully installed."""
    lacking = []
    for name in packages:
        state = ask(["dpkg-query", "-W", "-f=${Status}", name])
        if state != "install ok installed":
            lacking.append(name)
    return lacking
