"""An image of a few programs of this machine: small, made in a second, without a registry.

It has a shell and the tools that the tests call, no python: what a container is must be told from
inside by something, and that something need not be torch.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("sh", "cat", "chmod", "dd", "grep", "head", "id", "ls", "mkdir", "sleep", "tail", "timeout", "touch", "tr")
IMAGE = "atlas-test-tools:1"


def tar_of_tools() -> bytes:
    """A root file system as a tar: the programs, and the libraries that `ldd` names for them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in ("tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for name, path in sorted(_files().items()):
            archive.add(path, arcname=name.lstrip("/"), recursive=False)
    return buffer.getvalue()


def _files() -> dict[str, str]:
    """Path inside -> real file here."""
    files: dict[str, str] = {}
    for program in PROGRAMS:
        path = shutil.which(program, path="/usr/bin:/bin")
        assert path is not None, program
        files[f"/bin/{program}"] = str(Path(path).resolve())
        files.update((library, str(Path(library).resolve())) for library in _libraries(path))
    return files


def _libraries(program: str) -> Iterator[str]:
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, timeout=30).stdout
    yield from re.findall(r"(/\S+) \(0x", listing)
