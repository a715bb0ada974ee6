"""known_hosts files: which lines name a host."""

from __future__ import annotations

import base64
import shutil
import subprocess

import pytest

from harness.errors import HostKeyError
from harness.hostkeys import HostKeyRule, fingerprint, hashed_name, stored_keys

BLOB = b"a public key"
KEY = base64.b64encode(BLOB).decode()


def write(tmp_path, *lines: str):
    path = tmp_path / "known_hosts"
    path.write_text("\n".join(lines) + "\n")
    return path


def rule(path, **changes) -> HostKeyRule:
    fields = {"host": "lab", "lookup": "lab", "mode": "strict", "user_files": (path,), "global_files": ()}
    return HostKeyRule(**{**fields, **changes})


@pytest.mark.parametrize(
    ("patterns", "name", "found"),
    [
        ("lab", "lab", True),
        ("LAB", "lab", True),
        ("lab", "LAB", True),
        ("lab", "lab2", False),
        ("other,lab", "lab", True),
        ("lab*", "lab2.example.org", True),
        ("lab?", "lab2", True),
        ("lab?", "lab", False),
        ("*.example.org,!bad.example.org", "good.example.org", True),
        ("*.example.org,!bad.example.org", "bad.example.org", False),
        ("!bad.example.org,*.example.org", "bad.example.org", False),
        ("!bad", "good", False),
        ("[lab]:2222", "[lab]:2222", True),
        ("[lab]:2222", "lab", False),
        ("[lab]:*", "[lab]:2222", True),
        ("l.b", "lab", False),
        ("[a-z]ab", "lab", False),
    ],
)
def test_patterns(tmp_path, patterns: str, name: str, found: bool) -> None:
    path = write(tmp_path, f"{patterns} ssh-ed25519 {KEY} a comment")
    assert bool(stored_keys(name, [path])) is found


def test_markers_comments_and_positions(tmp_path) -> None:
    path = write(
        tmp_path,
        "# lab ssh-ed25519 " + KEY,
        "",
        f"\tlab   ssh-ed25519\t{KEY}  comment with words",
        f"@revoked * ssh-ed25519 {KEY}",
        f"@cert-authority *.lab,lab ssh-rsa {KEY}",
        "lab ssh-ed25519",
        "lab ssh-ed25519 !!!",
    )
    found = [(key.marker, key.key_type, key.where) for key in stored_keys("lab", [path])]
    assert found == [
        ("", "ssh-ed25519", f"{path}:3"),
        ("revoked", "ssh-ed25519", f"{path}:4"),
        ("cert-authority", "ssh-rsa", f"{path}:5"),
    ]


def test_hashed_names(tmp_path) -> None:
    path = write(tmp_path, f"{hashed_name('[lab]:2222')} ssh-ed25519 {KEY}")
    assert stored_keys("[lab]:2222", [path])
    assert not stored_keys("lab", [path])


def test_openssh_agrees_on_hashed_names(tmp_path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed: make system-deps")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = (tmp_path / "key.pub").read_text()
    path = write(tmp_path, f"lab {public}")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    assert path.read_text().startswith("|1|")
    (key,) = stored_keys("lab", [path])
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "key.pub")], check=True, capture_output=True, text=True
    )
    assert fingerprint(key.blob) == listed.stdout.split()[1]


def test_missing_and_unreadable_files_know_nobody(tmp_path) -> None:
    assert stored_keys("lab", [tmp_path / "missing", tmp_path]) == ()


def test_a_key_stored_without_the_port_is_accepted_and_never_counts_as_changed(tmp_path) -> None:
    path = write(tmp_path, f"lab ssh-ed25519 {KEY}")
    ported = rule(path, lookup="[lab]:2222")
    ported.check("ssh-ed25519", BLOB)
    with pytest.raises(HostKeyError, match="not known"):
        ported.check("ssh-ed25519", b"another key")


def test_a_key_of_another_type_counts_as_changed(tmp_path) -> None:
    path = write(tmp_path, f"lab ssh-ed25519 {KEY}")
    for mode in ("strict", "accept-new"):
        with pytest.raises(HostKeyError, match="has changed"):
            rule(path, mode=mode).check("ssh-rsa", b"another key")


def test_accept_new_beside_an_authority_is_refused(tmp_path) -> None:
    path = write(tmp_path, f"@cert-authority * ssh-ed25519 {KEY}")
    with pytest.raises(HostKeyError, match="certificate authority"):
        rule(path, mode="accept-new").check("ssh-ed25519", BLOB)


def test_known_types_follow_the_pin(tmp_path) -> None:
    path = write(tmp_path, f"lab ssh-ed25519 {KEY}", f"lab ssh-rsa {base64.b64encode(b'rsa').decode()}")
    assert rule(path).known_types() == ("ssh-ed25519", "ssh-rsa")
    assert rule(path, mode=fingerprint(b"rsa")).known_types() == ("ssh-rsa",)


def test_a_file_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(HostKeyError, match="cannot be stored in"):
        rule(tmp_path / "folder", mode="accept-new").check("ssh-ed25519", BLOB)
