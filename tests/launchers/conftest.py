"""The machine that the launcher's tests run on: this one as it is, and as bare as a Mac."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records.inventory import Host
from harness.transports import Transport, connect

# Read by every python below PYTHONPATH before its first line: there is no /proc and no prctl.
NO_LINUX = """
import ctypes, os

def hidden(real):
    def act(path=".", *rest, **words):
        if not isinstance(path, int) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, *rest, **words)
    return act

for name in ("stat", "lstat", "listdir", "scandir"):
    setattr(os, name, hidden(getattr(os, name)))

class NoPrctl:
    def __init__(self, *_, **__): pass
    def prctl(self, *_): return -1

ctypes.CDLL = NoPrctl
"""


def _connected() -> Iterator[Transport]:
    transport = connect(Host(name="here", transport="local"))
    transport.open()
    yield transport
    transport.close()


@pytest.fixture
def plain() -> Iterator[Transport]:
    """This machine as it is."""
    yield from _connected()


@pytest.fixture(params=["as it is", "as on a Mac"])
def transport(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    if request.param == "as on a Mac":
        ps = shutil.which("ps")
        assert ps is not None
        programs = tmp_path / "programs"  # no timeout, no setsid, no GNU tool at all
        programs.mkdir()
        (programs / "ps").symlink_to(ps)
        (programs / "sitecustomize.py").write_text(NO_LINUX)
        monkeypatch.setenv("PATH", str(programs))
        monkeypatch.setenv("PYTHONPATH", str(programs))
    yield from _connected()
