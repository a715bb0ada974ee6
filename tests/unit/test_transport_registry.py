"""The registry of transports and the script of the fake one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import AuthError, InventoryError, Unreachable, UsageError
from harness.records.inventory import Host
from harness.transports import TRANSPORTS, connect
from harness.transports.fake import FakeTransport, load_script


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_every_transport_is_made_unopened(name: str) -> None:
    transport = connect(Host(name="host", transport=name))
    with pytest.raises(Unreachable, match="host: not connected"):
        transport.run(["true"], timeout=1)


def test_an_unknown_transport_is_answered_with_those_there_are() -> None:
    host = Host(name="host").model_copy(update={"transport": "sssh"})
    with pytest.raises(UsageError, match="there are fake, local, ssh") as caught:
        connect(host)
    assert caught.value.hint == "transport: ssh"


def test_local_does_not_load_fabric() -> None:
    program = (
        "import sys; from harness.records.inventory import Host; from harness.transports import connect; "
        "connect(Host(name='l', transport='local')).open(); print('fabric' in sys.modules or 'paramiko' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


SCRIPT = r"""
directories: [/tmp]
files: {/etc/hostname: "lab3\n", /data/result: "@result.jsonl"}
replies:
  - {match: "^mkdir (?P<dir>/.+)$", makes: ["$dir"]}
  - {match: "^start (?P<dir>/.+)$", stdout: "in $dir costs $$1\n", files: {"$dir/out": "done in $dir"}}
  - {match: "^rm -r (?P<dir>/.+)$", removes: ["$dir"]}
  - {match: "^slow", delay: 5}
  - {match: "^reboot", lost: true}
"""


def play(tmp_path, text: str) -> FakeTransport:
    (tmp_path / "result.jsonl").write_bytes(b'{"record": "end"}\n')
    (tmp_path / "script.yaml").write_text(text)
    host = Host(name="fake", transport="fake", script=str(tmp_path / "script.yaml"))
    return FakeTransport(host, sleep=lambda _: None)


def test_a_script_plays_a_small_machine(tmp_path) -> None:
    fake = play(tmp_path, SCRIPT)
    fake.open()
    assert fake.get("/etc/hostname", limit=10) == b"lab3\n"
    assert fake.get("/data/result", limit=100) == b'{"record": "end"}\n'
    fake.run(["mkdir", "/tmp/run"], timeout=1)
    fake.put(b"x", "/tmp/run/job", mode=0o600)
    assert fake.run(["start", "/tmp/run"], timeout=1).stdout == b"in /tmp/run costs $1\n"
    assert fake.get("/tmp/run/out", limit=100) == b"done in /tmp/run"
    fake.run(["rm", "-r", "/tmp/run"], timeout=1)
    assert not [path for path in fake.files if path.startswith("/tmp/run")]
    assert fake.run(["unheard", "of"], timeout=1).exit_code == 127
    assert fake.run(["slow"], timeout=6).exit_code == 0
    with pytest.raises(Unreachable, match="lost while running reboot"):
        fake.run(["reboot"], timeout=1)
    with pytest.raises(Unreachable, match="not connected"):
        fake.get("/etc/hostname", limit=10)


def test_a_script_may_refuse_the_connection(tmp_path) -> None:
    fake = play(tmp_path, "open: {error: auth, message: no key fits, hint: ssh-add}")
    with pytest.raises(AuthError, match="fake: no key fits") as caught:
        fake.open()
    assert caught.value.hint == "ssh-add"
    with pytest.raises(Unreachable, match="no connection within"):
        play(tmp_path, "open: {delay: 1000}").open()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replies: [{match: a, exti: 3}]", "replies.0.exti"),
        ("replies: [{match: '('}]", r"match '\('"),
        ("replies: [", r"script.yaml:\d+:\d+"),
    ],
)
def test_faults_of_a_script_name_it(tmp_path, text: str, message: str) -> None:
    with pytest.raises(InventoryError, match=message):
        play(tmp_path, text)


def test_a_missing_script(tmp_path) -> None:
    with pytest.raises(InventoryError, match="cannot be read"):
        load_script(tmp_path / "nowhere")
