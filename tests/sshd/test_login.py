"""Which of our keys are offered, and the words for a server that takes none (limits F2, F11, F14)."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import AuthError

pytestmark = pytest.mark.sshd


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent of our own, empty."""
    sock = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        while not sock.exists():
            assert process.poll() is None
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        yield sock
    finally:
        process.terminate()
        process.wait()


def ssh_add(path: Path, passphrase: str = "") -> None:
    ask = path.parent / "askpass"
    ask.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    ask.chmod(0o700)
    env = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
    subprocess.run(["ssh-add", "-q", str(path)], env=env, stdin=subprocess.DEVNULL, check=True, timeout=20)


def let_in(fleet, name: str, key: Path) -> None:
    """Make `key` the only one that a machine accepts."""
    folder = fleet.directory / name
    (folder / "authorized").write_text(key.with_name(key.name + ".pub").read_text())


def use_agent(fleet, *, only_named: bool) -> None:
    config = fleet.ssh_config.read_text().replace("  IdentityAgent none\n", "")
    if not only_named:
        config = config.replace("  IdentitiesOnly yes\n", "")
    fleet.ssh_config.write_text(config)


def offers(fleet, name: str) -> int:
    return len(re.findall(r"service ssh-connection method publickey", fleet.log(name)))


def test_f2_a_host_is_never_offered_another_host_s_key(fleet, reach, make_key) -> None:
    stranger = make_key("stranger")
    closed = fleet.add("closed", key=str(stranger))
    with pytest.raises(AuthError):
        reach(closed).open()
    reach(fleet.add("open")).open()
    with pytest.raises(AuthError):
        reach(closed).open()
    assert offers(fleet, "open") == 1
    assert offers(fleet, "closed") == 2


def test_a_refused_key_is_named_with_a_way_out(fleet, reach, make_key) -> None:
    key = make_key("stranger")
    host = fleet.add("closed", key=str(key))
    with pytest.raises(AuthError, match="refused") as caught:
        reach(host).open()
    assert str(key) in caught.value.message
    assert caught.value.hint == f"ssh-copy-id -p {host.port} {host.user}@127.0.0.1"


def test_a_missing_key_file_is_named(fleet, reach, tmp_path) -> None:
    with pytest.raises(AuthError, match="nowhere is not there"):
        reach(fleet.add("host", key=str(tmp_path / "nowhere"))).open()


def test_a_key_file_that_is_no_key(fleet, reach, tmp_path) -> None:
    (tmp_path / "notes").write_text("not a key")
    with pytest.raises(AuthError, match="notes cannot be used"):
        reach(fleet.add("host", key=str(tmp_path / "notes"))).open()


def test_a_passphrase_is_never_asked_for(fleet, reach, make_key) -> None:
    key = make_key("locked", passphrase="correct horse")
    with pytest.raises(AuthError, match="needs a passphrase") as caught:
        reach(fleet.add("host", key=str(key))).open()
    assert caught.value.hint == f"ssh-add {key}"


def test_after_ssh_add_the_locked_key_works(fleet, reach, make_key, agent) -> None:
    key = make_key("locked", passphrase="correct horse")
    host = fleet.add("host", key=str(key), sshd_config=[f"AuthorizedKeysFile {fleet.directory}/host/authorized"])
    let_in(fleet, "host", key)
    use_agent(fleet, only_named=True)
    with pytest.raises(AuthError, match="needs a passphrase"):
        reach(host).open()
    ssh_add(key, "correct horse")
    reach(host).open()


def test_f14_an_explicit_key_is_offered_alone(fleet, reach, make_key, agent) -> None:
    for number in range(7):
        ssh_add(make_key(f"other-{number}"))
    use_agent(fleet, only_named=False)
    host = fleet.add("strict", sshd_config=["MaxAuthTries 2"])
    reach(host).open()
    assert offers(fleet, "strict") == 1


def test_f14_identities_only_is_honoured(fleet, reach, make_key, agent) -> None:
    for number in range(7):
        ssh_add(make_key(f"other-{number}"))
    use_agent(fleet, only_named=True)
    host = fleet.add("strict", sshd_config=["MaxAuthTries 2"], key=None)
    reach(host).open()
    assert offers(fleet, "strict") == 1


def test_the_agent_s_keys_are_offered_where_no_key_is_named(fleet, reach, make_key, agent) -> None:
    key = make_key("in-agent")
    ssh_add(key)
    host = fleet.add("host", key=None, sshd_config=[f"AuthorizedKeysFile {fleet.directory}/host/authorized"])
    let_in(fleet, "host", key)
    use_agent(fleet, only_named=False)
    reach(host).open()


def test_f14_a_server_that_had_enough_keys_is_explained(fleet, reach, make_key, agent) -> None:
    for number in range(7):
        ssh_add(make_key(f"other-{number}"))
    host = fleet.add("strict", key=None, sshd_config=["MaxAuthTries 2", "AuthorizedKeysFile none"])
    use_agent(fleet, only_named=False)
    with pytest.raises(AuthError, match="closed the connection after") as caught:
        reach(host).open()
    assert "IdentitiesOnly" in caught.value.hint


def test_a_server_for_passwords_only(fleet, reach) -> None:
    host = fleet.add("old", sshd_config=["PubkeyAuthentication no", "PasswordAuthentication yes"])
    with pytest.raises(AuthError, match=r"offers only .*password.*; keys are needed, passwords are never sent"):
        reach(host).open()


def test_a_second_factor_is_explained(fleet, reach) -> None:
    host = fleet.add("careful", sshd_config=["AuthenticationMethods publickey,password", "PasswordAuthentication yes"])
    with pytest.raises(AuthError, match="took the key and wants password"):
        reach(host).open()


def test_f11_a_failed_login_leaves_no_thread(fleet, reach, make_key) -> None:
    host = fleet.add("closed", key=str(make_key("stranger")))
    before = set(threading.enumerate())
    for _ in range(4):
        with pytest.raises(AuthError):
            reach(host).open()
    assert set(threading.enumerate()) <= before


def test_a_user_certificate_is_offered(fleet, reach, make_key) -> None:
    authority, key = make_key("authority"), make_key("certified")
    user = fleet.add("probe").user
    subprocess.run(["ssh-keygen", "-q", "-s", str(authority), "-I", "lab", "-n", user, f"{key}.pub"], check=True)
    host = fleet.add(
        "host", key=str(key), sshd_config=[f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile none"]
    )
    reach(host).open()
