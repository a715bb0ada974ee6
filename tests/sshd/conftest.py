"""A fleet of real sshd programs for each test that asks for one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.fleet import Fleet, find_sshd
from harness.records.inventory import Host
from harness.transports import Transport, connect


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    with Fleet(tmp_path / "fleet") as fleet:
        yield fleet


@pytest.fixture
def reach(fleet: Fleet) -> Iterator[Callable[[Host], Transport]]:
    """Make transports of the fleet's hosts; they are closed at the end."""
    made: list[Transport] = []

    def make(host: Host) -> Transport:
        made.append(connect(host, ssh_config=fleet.ssh_config))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def make_key(tmp_path: Path) -> Callable[..., Path]:
    """Make a key pair: name, type, passphrase."""

    def make(name: str, kind: str = "ed25519", passphrase: str = "") -> Path:
        path = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
        return path

    return make


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own agent plays no part; a test that wants one starts it."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
