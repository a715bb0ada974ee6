"""Known limits of Fabric, Invoke and Paramiko, each held off by a guard of ours, on a real sshd.

F1 test_host_keys, F2 and F14 test_login, F8, F9 and F11 test_jumps; the others are here.  F3 (an
unbounded pool of threads) and F12 (results keyed by connection) have no counterpart in a transport.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import paramiko
import pytest

from harness.errors import Blocked, CommandFailed, DeadlineExceeded, Unreachable
from harness.records.inventory import Host
from harness.transports import connect, ssh, sshlink

pytestmark = pytest.mark.sshd

TRUE = ["/bin/sh", "-c", "exit 0"]
HELLO = [
    "/bin/sh",
    "-c",
    "printf '%s|' \"$@\"; echo to-err >&2; exit 3",
    "sh",
    "two words",
    "it's",
    "\\'",
    "a\nb",
    "!x",
]


def test_f3_a_busy_sshd_is_tried_again(fleet, reach, monkeypatch) -> None:
    host = fleet.add("busy", sshd_config=["MaxStartups 1"])
    guest = socket.create_connection(("127.0.0.1", host.port))  # not logged in: takes the only place
    guest.recv(100)
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        guest.close()
        time.sleep(0.3)

    monkeypatch.setattr(sshlink, "time", _Clock(sleep))
    reach(host).open()
    assert 1 <= len(pauses) <= len(sshlink.RETRY_PAUSES)


def test_f3_a_sshd_that_stays_busy_is_unreachable(fleet, reach, monkeypatch) -> None:
    host = fleet.add("busy", sshd_config=["MaxStartups 1"])
    monkeypatch.setattr(sshlink, "RETRY_PAUSES", (0.01, 0.01))
    with socket.create_connection(("127.0.0.1", host.port)) as guest:
        guest.recv(100)
        with pytest.raises(Unreachable, match=r"does not speak SSH|Connection reset"):
            reach(host).open()


def test_a_closed_port_is_not_tried_again(fleet, reach, monkeypatch) -> None:
    monkeypatch.setattr(sshlink, "time", _Clock(lambda _: pytest.fail("a pause for a refused connection")))
    with pytest.raises(Unreachable, match="nothing listens"):
        reach(fleet.add("down", state="down")).open()


def test_f4_the_deadline_ends_the_wait_and_the_connection_stays(fleet, reach) -> None:
    transport = reach(fleet.add("host"))
    transport.open()
    for _ in range(4):
        with pytest.raises(DeadlineExceeded):
            transport.run(["/bin/sleep", "30"], timeout=0.2)
    assert transport.run(TRUE, timeout=30).exit_code == 0


def test_f4_commands_that_were_given_up_hold_their_sessions(fleet, reach) -> None:
    transport = reach(fleet.add("host", sshd_config=["MaxSessions 1"]))
    transport.open()
    with pytest.raises(DeadlineExceeded):
        transport.run(["/bin/sleep", "30"], timeout=2)
    with pytest.raises(CommandFailed, match="no further session") as caught:
        transport.run(TRUE, timeout=30)
    assert "open a new connection" in caught.value.hint
    transport.open()
    assert transport.run(TRUE, timeout=30).exit_code == 0


def test_f5_and_f6_much_output_is_cheap_and_whole(fleet, reach) -> None:
    transport = reach(fleet.add("host"))
    transport.open()
    text = "ü漢🧪" * 20_000
    done = transport.run(
        [sys.executable, "-c", f"import sys; sys.stdout.buffer.write({text[:3]!r}.encode()*20000)"], timeout=60
    )
    assert done.stdout.decode() == text


def test_f7_values_are_never_pasted_into_a_command(fleet, reach, tmp_path) -> None:
    transport = reach(fleet.add("host"))
    transport.open()
    value = f"x; touch {tmp_path}/pwned"
    done = transport.run(["/usr/bin/env", f"LAB={value}", "/bin/sh", "-c", 'printf %s "$LAB"'], timeout=30)
    assert done.stdout.decode() == value
    assert not (tmp_path / "pwned").exists()


def test_f10_a_host_that_accepts_and_never_speaks(fleet, reach) -> None:
    with pytest.raises(Unreachable, match=r"no connection within 1 s|does not speak SSH"):
        reach(fleet.add("hang", state="hang", connect_timeout=1.0)).open()


def test_f10_a_host_behind_a_hop_that_never_speaks(fleet, reach) -> None:
    fleet.add("bastion")
    with pytest.raises(Unreachable, match=r"no connection within 1.5 s|does not speak SSH"):
        reach(fleet.add("hang", state="hang", behind=["bastion"], connect_timeout=1.5)).open()


@pytest.mark.parametrize("stuck_in", ["exec", "channel", "sftp"])
def test_f10_a_server_that_stops_answering(tmp_path, monkeypatch, stuck_in: str) -> None:
    """It logs us in and then leaves a request unanswered, where Paramiko would wait for ever."""
    monkeypatch.setattr(ssh, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(ssh, "TRANSFER_SECONDS", 1.0)
    with _StuckServer(stuck_in) as server:
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.public_key}\n")
        (tmp_path / "config").write_text(
            f"Host *\n UserKnownHostsFile {tmp_path}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
        )
        host = Host(name="stuck", address="127.0.0.1", port=server.port, user="lab", host_key="strict")
        transport = connect(host, ssh_config=tmp_path / "config")
        transport.open()
        try:
            with pytest.raises(DeadlineExceeded):
                if stuck_in == "sftp":
                    transport.get("/etc/hostname", limit=1)
                else:
                    transport.run(TRUE, timeout=0.5)
        finally:
            transport.close()


def test_f10_keepalives_are_on(fleet, reach) -> None:
    transport = reach(fleet.add("host"))
    transport.open()
    assert transport._transport().packetizer._Packetizer__keepalive_interval == sshlink.KEEPALIVE_SECONDS


def test_f11_no_thread_outlives_its_connection(fleet, reach) -> None:
    fleet.add("bastion")
    hosts = [fleet.add("inside", behind=["bastion"]), fleet.add("down", state="down")]
    hosts.append(fleet.add("hang", state="hang", connect_timeout=0.5))
    before = set(threading.enumerate())
    for host in hosts:
        transport = reach(host)
        try:
            transport.open()
            transport.run(TRUE, timeout=30)
        except Unreachable:
            pass
        transport.close()
    end = time.monotonic() + 20  # the thread of an abandoned attempt ends when it sees its socket closed
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.05)
    assert set(threading.enumerate()) <= before


def test_f12_two_transports_of_one_host_are_two(fleet, reach) -> None:
    host = fleet.add("host")
    assert len({reach(host), reach(host)}) == 2


def test_f13_standard_input_is_left_alone(fleet, reach, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    transport = reach(fleet.add("host"))
    transport.open()
    assert transport.run(["/bin/cat"], timeout=30).stdout == b""


def test_f15_one_connection_serves_any_number_of_acts(fleet, reach, tmp_path) -> None:
    transport = reach(fleet.add("host", sshd_config=["MaxSessions 2"]))
    transport.open()
    for number in range(15):
        assert transport.run(TRUE, timeout=30).exit_code == 0
        transport.put(b"data", f"{tmp_path}/{number}", mode=0o600)
        assert transport.get(f"{tmp_path}/{number}", limit=10) == b"data"


def test_f16_threads_have_their_own_connections(fleet) -> None:
    host = fleet.add("host")

    def visit(number: int) -> bytes:
        transport = connect(host, ssh_config=fleet.ssh_config)
        transport.open()
        try:
            return transport.run(["/bin/echo", str(number)], timeout=60).stdout
        finally:
            transport.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(visit, range(8))) == [f"{number}\n".encode() for number in range(8)]


def test_f17_paramiko_is_new_enough() -> None:
    assert int(version("paramiko").split(".")[0]) >= 5
    assert "ssh-rsa" not in paramiko.Transport._preferred_keys  # SHA-1 signatures


# --- F18: login shells, greetings, hosts without SFTP ---------------------------------------------


def _shells() -> list[str]:
    """Every shell there is on this machine; fish and csh quote unlike the others."""
    return [name for name in ("sh", "bash", "dash", "zsh", "fish", "tcsh", "csh") if shutil.which(name)]


@pytest.mark.parametrize("shell", _shells())
def test_f18_any_login_shell_will_do(fleet, reach, shell: str) -> None:
    # As sshd itself calls a login shell.
    transport = reach(fleet.add("host", force_command=f'{shutil.which(shell)} -c "$SSH_ORIGINAL_COMMAND"'))
    transport.open()
    done = transport.run(HELLO, timeout=30)
    assert (done.exit_code, done.stdout) == (3, b"two words|it's|\\'|a\nb|!x|")
    assert done.stderr == b"to-err\n"


def test_f18_a_login_shell_is_asked_for_plain_words_only(fleet, reach, tmp_path) -> None:
    """It stands for fish, csh and the like where none is installed: words and spaces mean the same to all."""
    picky = tmp_path / "picky"
    picky.write_text(
        f"#!{sys.executable}\nimport os, re\ncommand = os.environ['SSH_ORIGINAL_COMMAND']\n"
        "assert re.fullmatch(r'exec( [A-Za-z0-9/_.-]+)+', command), command\n"
        "words = command.split()[1:]\nos.execv(words[0], words)\n"
    )
    picky.chmod(0o755)
    transport = reach(fleet.add("picky", force_command=str(picky)))
    transport.open()
    assert transport.run(HELLO, timeout=30).stdout == b"two words|it's|\\'|a\nb|!x|"


@pytest.mark.parametrize("size", [20, 3_000_000])
def test_f18_what_login_files_print_is_not_output(fleet, reach, size: int) -> None:
    noise = f"head -c {size} /dev/zero | tr '\\\\0' n"
    transport = reach(fleet.add("noisy", force_command=f"/bin/sh -c '{noise}; {noise} >&2; exec /bin/sh'"))
    transport.open()
    done = transport.run(HELLO, timeout=60)
    assert (done.stdout, done.stderr) == (b"two words|it's|\\'|a\nb|!x|", b"to-err\n")


def test_f18_a_banner_is_not_output(fleet, reach) -> None:
    transport = reach(fleet.add("polite", banner="Welcome to the lab\nNo smoking\n"))
    transport.open()
    assert transport.run(HELLO, timeout=30).stderr == b"to-err\n"


def test_an_account_without_a_shell_is_blocked(fleet, reach) -> None:
    transport = reach(fleet.add("closed", force_command="echo This account is not available; exit 1"))
    transport.open()
    with pytest.raises(Blocked, match="This account is not available") as caught:
        transport.run(TRUE, timeout=30)
    assert "chsh" in caught.value.hint


def test_f18_a_host_without_sftp_is_blocked(fleet, reach) -> None:
    transport = reach(fleet.add("no-sftp", sshd_config=["Subsystem nothing internal-sftp"]))
    transport.open()
    with pytest.raises(Blocked, match="SFTP") as caught:
        transport.put(b"", "/tmp/never", mode=0o600)
    assert "Subsystem sftp internal-sftp" in caught.value.hint
    assert transport.run(TRUE, timeout=30).exit_code == 0


def test_f18_noise_on_the_sftp_channel_is_blocked(fleet, reach) -> None:
    transport = reach(fleet.add("noisy", sshd_config=["Subsystem sftp /bin/echo Welcome to the lab"]))
    transport.open()
    with pytest.raises(Blocked, match="SFTP"):
        transport.get("/etc/hostname", limit=1000)


# --- connections that break -----------------------------------------------------------------------


def test_a_connection_that_dies_in_mid_run(fleet, reach) -> None:
    transport = reach(fleet.add("host"))
    transport.open()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(transport.run, ["/bin/sleep", "60"], timeout=100)
        end = time.monotonic() + 30
        while "Starting session: command" not in fleet.log("host") and time.monotonic() < end:
            time.sleep(0.02)
        for pid in fleet.processes("host"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unreachable, match="the connection was lost while running") as caught:
            running.result(timeout=60)
    assert caught.value.reason == "connection_lost"
    with pytest.raises(Unreachable):
        transport.run(TRUE, timeout=5)
    with pytest.raises(Unreachable, match="the connection was lost while reading"):
        transport.get("/etc/hostname", limit=100)


def test_a_command_that_hangs_is_not_a_lost_host(fleet, reach) -> None:
    transport = reach(fleet.add("slow", force_command="sleep 30"))
    transport.open()
    with pytest.raises(DeadlineExceeded):
        transport.run(TRUE, timeout=0.5)


class _Clock:
    """The time module with another sleep."""

    def __init__(self, sleep) -> None:
        self.sleep = sleep
        self.monotonic = time.monotonic


class _StuckServer:
    """An SSH server that lets anyone in and then leaves one kind of request unanswered."""

    def __init__(self, stuck_in: str) -> None:
        self._stuck_in = stuck_in
        self._released = threading.Event()
        self._key = paramiko.ECDSAKey.generate()
        self.public_key = f"{self._key.get_name()} {self._key.get_base64()}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> _StuckServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        stuck_in, released = self._stuck_in, self._released

        class Door(paramiko.ServerInterface):
            def check_auth_none(self, username):
                return paramiko.AUTH_SUCCESSFUL

            def check_channel_request(self, kind, chanid):
                if stuck_in == "channel":
                    released.wait(30)
                return paramiko.OPEN_SUCCEEDED

            def check_channel_exec_request(self, channel, command):
                released.wait(30)
                return True

            def check_channel_subsystem_request(self, channel, name):
                released.wait(30)
                return True

        with sock:
            transport = paramiko.Transport(sock)
            transport.add_server_key(self._key)
            transport.start_server(server=Door())
            self._released.wait(30)
            transport.close()
            transport.join(10)


def test_the_log_names_every_command_once(fleet, reach) -> None:
    """One channel, one request, nothing of Fabric's own around it."""
    transport = reach(fleet.add("host"))
    transport.open()
    transport.run(TRUE, timeout=30)
    transport.close()
    assert len(re.findall(r"Starting session: ", fleet.log("host"))) == 1
