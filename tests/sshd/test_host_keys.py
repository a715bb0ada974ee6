"""Which keys of a real sshd are trusted, and what is said of the others (limit F1 of Fabric)."""

from __future__ import annotations

import base64
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.errors import HostKeyError
from harness.hostkeys import fingerprint
from harness.transports import connect

pytestmark = pytest.mark.sshd


def shown_fingerprint(fleet, name: str) -> str:
    blob = (fleet.directory / name / "host_key.pub").read_text().split()[1]
    return fingerprint(base64.b64decode(blob))


def test_a_known_key_is_accepted(fleet, reach) -> None:
    reach(fleet.add("good")).open()


def test_a_hashed_name_is_found(fleet, reach) -> None:
    host = fleet.add("hashed", known_hosts="hashed")
    assert "127.0.0.1" not in fleet.known_hosts.read_text()
    reach(host).open()


def test_f1_a_wrong_key_is_refused(fleet, reach) -> None:
    host = fleet.add("impostor", known_hosts="wrong")
    with pytest.raises(HostKeyError, match="has changed") as caught:
        reach(host).open()
    assert f"{fleet.known_hosts}:1" in caught.value.message
    assert shown_fingerprint(fleet, "impostor") in caught.value.message
    assert caught.value.message.count("SHA256:") == 2
    assert f"ssh-keygen -R '[127.0.0.1]:{host.port}'" in caught.value.hint
    # Nothing was sent: the server saw no user name.
    assert "userauth-request" not in fleet.log("impostor")


def test_f1_an_unknown_key_is_refused_with_the_words_to_type(fleet, reach) -> None:
    host = fleet.add("stranger", known_hosts="unknown")
    with pytest.raises(HostKeyError, match="not known") as caught:
        reach(host).open()
    assert shown_fingerprint(fleet, "stranger") in caught.value.message
    assert f"ssh -F {fleet.ssh_config}" in caught.value.hint
    assert f"-p {host.port}" in caught.value.hint
    assert "ssh-keygen -lf" in caught.value.hint


def test_accept_new_stores_the_key_once_and_then_holds_to_it(fleet, reach) -> None:
    host = fleet.add("new", known_hosts="unknown", host_key="accept-new")
    fleet.known_hosts.write_text("# no newline at the end")
    for _ in range(2):
        reach(host).open()
    lines = fleet.known_hosts.read_text().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"[127.0.0.1]:{host.port} ssh-ed25519 ")
    reach(host.model_copy(update={"host_key": "strict"})).open()


def test_accept_new_by_many_threads_stores_one_line(fleet) -> None:
    host = fleet.add("new", known_hosts="unknown", host_key="accept-new")

    def visit(_: int) -> None:
        transport = connect(host, ssh_config=fleet.ssh_config)
        transport.open()
        transport.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(visit, range(4)))
    assert len(fleet.known_hosts.read_text().splitlines()) == 1


def test_accept_new_hashes_names_where_openssh_would(fleet, reach) -> None:
    host = fleet.add("new", known_hosts="unknown", host_key="accept-new")
    config = fleet.ssh_config.read_text().replace("HashKnownHosts no", "HashKnownHosts yes")
    fleet.ssh_config.write_text(config)
    reach(host).open()
    assert fleet.known_hosts.read_text().startswith("|1|")
    reach(host.model_copy(update={"host_key": "strict"})).open()


def test_accept_new_still_refuses_a_changed_key(fleet, reach) -> None:
    host = fleet.add("impostor", known_hosts="wrong", host_key="accept-new")
    with pytest.raises(HostKeyError, match="has changed"):
        reach(host).open()
    assert len(fleet.known_hosts.read_text().splitlines()) == 1


def test_a_pinned_key_needs_no_file(fleet, reach) -> None:
    host = fleet.add("pinned", known_hosts="wrong")
    pin = shown_fingerprint(fleet, "pinned")
    reach(host.model_copy(update={"host_key": pin})).open()
    with pytest.raises(HostKeyError, match="pinned is SHA256:AAAA"):
        reach(host.model_copy(update={"host_key": "SHA256:" + "A" * 43})).open()


@pytest.mark.parametrize("mode", ["strict", "accept-new", "pinned"])
def test_a_revoked_key_is_refused_in_every_mode(fleet, reach, mode: str) -> None:
    host = fleet.add("revoked", known_hosts="revoked")
    pin = shown_fingerprint(fleet, "revoked")
    host = host.model_copy(update={"host_key": pin if mode == "pinned" else mode})
    with fleet.known_hosts.open("a") as stream:  # even where another line knows the key
        key = (fleet.directory / "revoked" / "host_key.pub").read_text()
        stream.write(f"[127.0.0.1]:{host.port} {key}")
    with pytest.raises(HostKeyError, match=f"revoked in {fleet.known_hosts}:1"):
        reach(host).open()


def test_openssh_revocation_lists_are_asked(fleet, reach) -> None:
    host = fleet.add("listed")
    other = fleet.add("other")
    revoked = fleet.directory / "revoked.krl"
    key = fleet.directory / "listed" / "host_key.pub"
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(revoked), str(key)], check=True)
    fleet.ssh_config.write_text(fleet.ssh_config.read_text() + f"  RevokedHostKeys {revoked}\n")
    with pytest.raises(HostKeyError, match=r"revoked in .*revoked\.krl"):
        reach(host).open()
    reach(other).open()
    revoked.unlink()
    with pytest.raises(HostKeyError, match="cannot be asked"):
        reach(other).open()


def test_a_certificate_authority_alone_is_a_sentence(fleet, reach) -> None:
    host = fleet.add("signed", known_hosts="authority")
    with pytest.raises(HostKeyError, match="openssh transport") as caught:
        reach(host).open()
    assert f"host_key: {shown_fingerprint(fleet, 'signed')}" in caught.value.hint


def test_lines_about_others_do_no_harm(fleet, reach) -> None:
    host = fleet.add("good")
    key = (fleet.directory / "good" / "host_key.pub").read_text().split()[1]
    strange = [
        f"@cert-authority *.example.org ssh-ed25519 {key} an authority for others",
        f"@revoked other.example.org ssh-ed25519 {key}",
        "@cert-authority",
        "broken line",
        "other.example.org ssh-ed25519 not-base64!",
        "other.example.org ssh-xmss@openssh.com AAAA",
        "|1|broken|hash ssh-ed25519 AAAA",
        "\x00\xff",
    ]
    known = fleet.known_hosts.read_text()
    fleet.known_hosts.write_bytes("\n".join([*strange, known]).encode("latin-1"))
    reach(host).open()


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_host_with_several_keys_is_asked_for_the_one_we_know(fleet, reach, make_key, kind: str) -> None:
    key = make_key(f"host_{kind}", kind)
    host = fleet.add("several", known_hosts="unknown", sshd_config=[f"HostKey {key}"])
    stored = key.with_suffix(".pub").read_text()
    fleet.known_hosts.write_text(f"[127.0.0.1]:{host.port} {stored}")
    reach(host).open()


def test_two_keys_of_one_type_may_both_be_stored(fleet, reach, make_key) -> None:
    host = fleet.add("rolled")
    older = make_key("older").with_suffix(".pub").read_text()
    fleet.known_hosts.write_text(f"[127.0.0.1]:{host.port} {older}{fleet.known_hosts.read_text()}")
    reach(host).open()


def test_host_key_alias_is_looked_up_without_the_port(fleet, reach) -> None:
    host = fleet.add("aliased", known_hosts="unknown")
    key = (fleet.directory / "aliased" / "host_key.pub").read_text()
    fleet.known_hosts.write_text(f"the-real-name {key}")
    fleet.ssh_config.write_text(fleet.ssh_config.read_text() + "  HostKeyAlias the-real-name\n")
    reach(host).open()


def test_the_global_file_counts(fleet, reach) -> None:
    host = fleet.add("good")
    system_wide = fleet.directory / "ssh_known_hosts"
    shutil.move(fleet.known_hosts, system_wide)
    config = fleet.ssh_config.read_text().replace("/dev/null", str(system_wide))
    fleet.ssh_config.write_text(config)
    reach(host).open()


def test_our_verdicts_are_those_of_openssh(fleet) -> None:
    """The same files, read by ssh itself."""
    verdicts = {}
    for known in ("right", "hashed", "wrong", "unknown", "revoked", "authority"):
        host = fleet.add(known, known_hosts=known)
        theirs = subprocess.run(
            ["ssh", "-F", str(fleet.ssh_config), known, "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
        transport = connect(host, ssh_config=fleet.ssh_config)
        try:
            transport.open()
            ours = True
        except HostKeyError:
            ours = False
        finally:
            transport.close()
        verdicts[known] = (ours, theirs.returncode == 0)
    assert all(ours == theirs for ours, theirs in verdicts.values()), verdicts
    assert [known for known, (ours, _) in verdicts.items() if ours] == ["right", "hashed"]
