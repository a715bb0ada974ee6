"""What `ssh -G` says, read into a record; nothing is dialled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.errors import Unreachable
from harness.records.inventory import Host
from harness.sshconfig import parse, resolve, route


@pytest.fixture
def config(tmp_path: Path):
    """Write an ssh_config and return its path."""
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed: make system-deps")

    def write(text: str) -> Path:
        path = tmp_path / "config"
        path.write_text(text)
        return path

    return write


def test_a_whole_host(config, tmp_path) -> None:
    path = config(
        "Host lab\n HostName 10.0.0.7\n Port 2222\n User ada\n IdentitiesOnly yes\n"
        f' IdentityFile "{tmp_path}/my %h key"\n UserKnownHostsFile {tmp_path}/one "{tmp_path}/t w o"\n'
        " GlobalKnownHostsFile /dev/null\n HostKeyAlias lab-key\n HashKnownHosts yes\n ConnectTimeout 7\n"
        " StrictHostKeyChecking accept-new\n ProxyJump a,b\n IdentityAgent none\n RevokedHostKeys /etc/revoked\n"
    )
    lab = resolve("lab", config=path)
    assert lab.end == ("10.0.0.7", 2222, "ada")
    assert lab.identity_files == (tmp_path / "my 10.0.0.7 key",)
    assert lab.identities_given and lab.identities_only and lab.hash_known_hosts
    assert lab.user_known_hosts == (tmp_path / "one", tmp_path / "t w o")
    assert lab.global_known_hosts == (Path("/dev/null"),)
    assert (lab.host_key_alias, lab.lookup_name) == ("lab-key", "lab-key")
    assert (lab.connect_timeout, lab.strict_host_key_checking) == (7.0, "accept-new")
    assert lab.proxy_jump == ("a", "b")
    assert lab.identity_agent == "none"
    assert lab.revoked_host_keys == Path("/etc/revoked")


def test_options_win_over_the_file(config) -> None:
    lab = resolve("lab", user="grace", port=99, config=config("Host *\n User ada\n Port 22\n"))
    assert (lab.user, lab.port, lab.lookup_name) == ("grace", 99, "[lab]:99")


def test_defaults(config) -> None:
    lab = resolve("lab", config=config(""))
    assert not lab.identities_given
    assert lab.identity_files[0].is_absolute()
    assert lab.proxy_jump == () and lab.proxy_command is None


@pytest.mark.parametrize("line", ["ProxyJump none", "ProxyCommand none"])
def test_none_is_nothing(config, line: str) -> None:
    lab = resolve("lab", config=config(f"Host lab\n {line}\nHost *\n ProxyJump bastion\n"))
    assert lab.proxy_jump == () and lab.proxy_command is None


def test_tokens_of_a_proxy_command(config) -> None:
    path = config("Host lab\n HostName 10.0.0.7\n User ada\n ProxyCommand nc -x %% %h %p %r %n\n")
    assert resolve("lab", config=path).proxy_command == "nc -x % 10.0.0.7 22 ada lab"


@pytest.mark.parametrize("user", ["a$b", "a;b", "$(id)"])
def test_a_proxy_command_takes_plain_words_only(user: str) -> None:
    with pytest.raises(Unreachable, match="cannot be put into its ProxyCommand"):
        parse("lab", f"hostname lab\nuser {user}\nport 22\nproxycommand connect %r %h\n")


def test_faults_of_the_file_are_shown(config) -> None:
    with pytest.raises(Unreachable, match=r"ssh refuses its configuration: .*line 1.*nonsense"):
        resolve("lab", config=config("Nonsense yes\n"))


def test_a_name_is_never_an_option(config) -> None:
    with pytest.raises(Unreachable):
        resolve("-oProxyCommand=touch /tmp/pwned", config=config(""))


def test_without_ssh_there_is_a_sentence(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unreachable, match="ssh is not on this machine") as caught:
        resolve("lab")
    assert caught.value.hint == "sudo apt-get install openssh-client"


def ends(host: Host, path: Path) -> list[str]:
    return [str(hop) for hop in route(host, config=path)]


def test_jumps_of_hosts_yaml(config) -> None:
    host = Host(name="lab", user="ada", jump=("grace@near:2200", "[::1]:23", "far"))
    path = config("Host far\n HostName 10.0.0.9\nHost *\n User joan\n")
    assert ends(host, path) == ["grace@near:2200", "joan@::1:23", "joan@10.0.0.9:22", "ada@lab:22"]


def test_jumps_replace_those_of_ssh_config(config) -> None:
    path = config("Host lab\n ProxyJump old\nHost *\n User joan\n")
    assert ends(Host(name="lab"), path) == ["joan@old:22", "joan@lab:22"]
    assert ends(Host(name="lab", jump=("new",)), path) == ["joan@new:22", "joan@lab:22"]
    assert ends(Host(name="lab", jump=("none",)), path) == ["joan@lab:22"]


def test_a_url_as_jump(config) -> None:
    path = config("Host lab\n ProxyJump ssh://grace@near:2200\nHost *\n User joan\n")
    assert ends(Host(name="lab"), path) == ["grace@near:2200", "joan@lab:22"]
