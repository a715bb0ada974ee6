"""The loopback fleet itself: what it offers the demonstration, and that nothing of it stays."""

from __future__ import annotations

import os
import subprocess

import pytest

from harness.errors import Blocked
from harness.fleet import Fleet, find_sshd
from harness.inventory import load

pytestmark = pytest.mark.sshd


def test_its_inventory_is_a_hosts_yaml(fleet, tmp_path) -> None:
    fleet.add("good")
    fleet.add("inside", behind=["good"], python="/opt/torch/bin/python", connect_timeout=4.5)
    fleet.add("down", state="down")
    fleet.write_inventory(tmp_path / "hosts.yaml")
    assert load(tmp_path / "hosts.yaml").hosts == fleet.hosts()


def test_a_machine_without_torch_has_a_python_without_packages(fleet, reach) -> None:
    host = fleet.add("no-torch", torch=False)
    transport = reach(host)
    transport.open()
    program = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import torch']))"
    done = transport.run([host.python, "-c", program], timeout=60)
    assert done.exit_code == 1
    assert b"No module named 'torch'" in done.stderr


def test_stop_ends_every_process(tmp_path) -> None:
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    fleet = Fleet(tmp_path / "fleet")
    fleet.add("one")
    fleet.add("two", state="hang")
    server = fleet._servers["one"].pid
    session = subprocess.Popen(
        ["ssh", "-F", str(fleet.ssh_config), "one", "echo up; sleep 60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with session:
        assert session.stdout.readline() == b"up\n"
        below = fleet.processes("one")
        assert len(below) >= 2
        fleet.stop()
        session.communicate(timeout=30)
    fleet.stop()
    for pid in [server, *below]:
        assert not _runs(pid)


def test_a_configuration_that_sshd_refuses_is_shown(fleet) -> None:
    with pytest.raises(Blocked, match="did not start"):
        fleet.add("broken", sshd_config=["NoSuchOption yes"])


def _runs(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet collected by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def test_the_users_own_shell_files_are_no_part_of_it(fleet, reach) -> None:
    transport = reach(fleet.add("box"))
    transport.open()
    home = transport.run(("/bin/sh", "-c", 'echo "$HOME"'), timeout=30).stdout.decode().strip()
    assert home == str(fleet.directory / "box" / "home")
