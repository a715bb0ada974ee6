"""The machines that the contract suite runs on, each behind one transport."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fleet import Fleet, find_sshd
from harness.records.inventory import Host
from harness.transports import Transport, connect
from harness.transports.fake import FakeTransport
from tests.contract.machines import FAKE_SCRIPT, Machine


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    with Fleet(tmp_path_factory.mktemp("contract") / "fleet") as fleet:
        fleet.add("plain")
        # A Mac has neither timeout nor setsid: here the PATH holds nothing at all.
        fleet.add("no-gnu", set_env={"PATH": "/nonexistent"})
        fleet.add("bastion")
        fleet.add("inside", behind=["bastion"])
        yield fleet


def _mode_of_real(_transport: Transport, path: str) -> int:
    return Path(path).stat().st_mode & 0o7777


def _mode_of_fake(transport: Transport, path: str) -> int:
    assert isinstance(transport, FakeTransport)
    return transport.files[path].mode


@pytest.fixture(
    params=["local", "local without GNU tools", "ssh", "ssh without GNU tools", "ssh through a jump host", "fake"]
)
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    kind: str = request.param
    if kind == "fake":
        host = Host(name="fake", transport="fake")
        return Machine(
            lambda: FakeTransport(host, script=FAKE_SCRIPT, sleep=lambda _: None), "/lab", _mode_of_fake, False
        )
    if kind.startswith("local"):
        if "without" in kind:
            monkeypatch.setenv("PATH", "/nonexistent")
        return Machine(lambda: connect(Host(name="local", transport="local")), str(tmp_path), _mode_of_real)
    fleet: Fleet = request.getfixturevalue("fleet")
    names = {"ssh": "plain", "ssh without GNU tools": "no-gnu", "ssh through a jump host": "inside"}
    host = next(host for host in fleet.hosts() if host.name == names[kind])
    return Machine(lambda: connect(host, ssh_config=fleet.ssh_config), str(tmp_path), _mode_of_real)


@pytest.fixture
def transport(machine: Machine) -> Iterator[Transport]:
    transport = machine.connect()
    transport.open()
    yield transport
    transport.close()
