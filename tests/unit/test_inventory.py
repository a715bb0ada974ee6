"""hosts.yaml -> Inventory, and patterns -> hosts."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import inventory, inventory_faults
from harness.errors import InventoryError, NothingSelected, UsageError
from harness.records.hosts_file import GroupEntry, HostEntry, HostsFile
from harness.records.inventory import Host, Inventory, TargetSettings

SHIPPED = Path(__file__).parents[2] / "hosts.yaml"


def parse(text: str) -> Inventory:
    return inventory.parse(text.encode())


def faults(text: str) -> list[str]:
    with pytest.raises(InventoryError) as caught:
        parse(text)
    assert str(caught.value) == "\n".join(caught.value.faults)
    return caught.value.faults


def host(fields: str) -> Host:
    """The one host `lab1`, its fields written in flow style."""
    return parse(f"hosts:\n  lab1: {{{fields}}}").hosts[0]


def fault(fields: str) -> str:
    [only] = faults(f"hosts:\n  lab1: {{{fields}}}")
    return only


# ---------------------------------------------------------------- what is read


def test_the_shipped_file_has_localhost_live() -> None:
    shipped = inventory.load(SHIPPED)
    assert [(one.name, one.transport) for one in shipped.hosts] == [("localhost", "local")]
    assert shipped == inventory.EMBEDDED
    first = SHIPPED.read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=harness/schemas/hosts.v1.schema.json"


def test_the_shipped_fleet_loads_once_it_is_uncommented() -> None:
    head, live, fleet = SHIPPED.read_text(encoding="utf-8").partition("        enabled: false\n")
    uncommented = head + live + re.sub(r"(?m)^( *)# ?", r"\1", fleet)
    result = parse(uncommented)
    by_name = {one.name: one for one in result.hosts}
    assert list(by_name) == ["localhost", "mac-m3", "cuda-box", "xpu-box", "cpu-server"]
    assert by_name["mac-m3"].timeout == 600
    assert by_name["mac-m3"].python == "~/venvs/torch/bin/python"
    assert [target.name for target in by_name["cuda-box"].targets] == ["stable", "nightly"]
    assert by_name["cuda-box"].user == by_name["xpu-box"].user == "atlas"
    assert by_name["xpu-box"].targets[0].backends == ("cpu", "xpu")
    assert by_name["cpu-server"].jump == ("me@bastion.example.org",)
    assert {group.name: group.hosts for group in result.groups} == {
        "laptops": ("mac-m3",),
        "lab": ("cuda-box", "xpu-box", "cpu-server"),
        "cuda": ("cuda-box",),
    }


def test_without_a_file_localhost_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert inventory.load() == inventory.EMBEDDED
    assert inventory.EMBEDDED.hosts[0].transport == "local"
    (tmp_path / "hosts.yaml").write_text("hosts: {other: }")
    assert [one.name for one in inventory.load().hosts] == ["other"]


def test_a_dangling_link_is_not_an_absent_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yaml").symlink_to("nowhere")
    with pytest.raises(InventoryError, match=r"^hosts\.yaml:1:1 there is no such file"):
        inventory.load()


def test_the_host_wins_over_its_groups_in_order_and_the_defaults_come_last() -> None:
    text = """
    defaults: {port: 1, user: default, python: python-default, timeout: 5}
    groups:
      first: {port: 2, user: first, description: the first}
      second: {port: 3, user: second, python: python-second}
    hosts:
      a: {groups: [first, second], port: 4}
      b: {groups: [second, first]}
      c: {}
    """
    a, b, c = parse(text).hosts
    assert (a.port, a.user, a.python, a.timeout) == (4, "first", "python-second", 5)
    assert (b.port, b.user) == (3, "second")
    assert (c.port, c.user, c.python, c.groups) == (1, "default", "python-default", ())


def test_a_value_equal_to_the_built_in_default_still_overrides() -> None:
    text = "defaults: {timeout: 5, user: x}\nhosts: {a: {timeout: 1800, user: null}}"
    [only] = parse(text).hosts
    assert (only.timeout, only.user) == (1800, None)


def test_defaults_may_name_groups_and_a_host_may_leave_them() -> None:
    a, b = parse("defaults: {groups: [g]}\ngroups: {g: {port: 7}}\nhosts: {a: , b: {groups: []}}").hosts
    assert (a.groups, a.port) == (("g",), 7)
    assert (b.groups, b.port) == ((), None)


def test_targets_have_names_and_are_taken_whole() -> None:
    text = """
    groups: {g: {targets: {one: , two: {python: /p}}}}
    hosts:
      a: {groups: [g]}
      b: {groups: [g], targets: {three: {backends: [cpu]}}}
      c: {}
    """
    a, b, c = parse(text).hosts
    assert [(target.name, target.python) for target in a.targets] == [("one", None), ("two", "/p")]
    assert [(target.name, target.backends) for target in b.targets] == [("three", ("cpu",))]
    assert [target.name for target in c.targets] == ["native"]


@pytest.mark.parametrize(
    ("written", "hops"),
    [
        ("a", ("a",)),
        ("'me@a:22, b'", ("me@a:22", "b")),
        ("[a, 'b:2222']", ("a", "b:2222")),
        ("'[fe80::1%eth0]:22'", ("[fe80::1%eth0]:22",)),
        ("none", ("none",)),
        ("'[::1],x:65535'", ("[::1]", "x:65535")),
    ],
)
def test_jump_is_a_string_or_a_list(written: str, hops: tuple[str, ...]) -> None:
    assert host(f"jump: {written}").jump == hops


def test_what_yaml_1_1_would_have_changed_stays_text() -> None:
    assert host("user: no, address: off, workdir: /22:22").user == "no"


# ---------------------------------------------------------------- what is refused


def test_all_faults_come_at_once_sorted_each_with_its_place() -> None:
    text = """\
hosts:
  lab1:
    port: 70000
    usr: me
    groups: [labb]
  lab1: {}
  Lab2: {transport: shh}
groups:
  lab: {timeout: -1, torch_version: 2.10}
defaults: {password: hunter2}
"""
    found = faults(text)
    assert [line.split(": ", 1)[0] for line in found] == [
        "hosts.yaml:3:11 lab1.port",
        "hosts.yaml:4:5 lab1.usr",
        "hosts.yaml:5:14 lab1.groups[0]",
        "hosts.yaml:6:3 lab1",
        "hosts.yaml:7:3 Lab2",
        "hosts.yaml:7:21 Lab2.transport",
        "hosts.yaml:9:18 groups.lab.timeout",
        "hosts.yaml:9:22 groups.lab.torch_version",
        "hosts.yaml:9:37 groups.lab.torch_version",
        "hosts.yaml:10:12 defaults.password",
    ]
    assert "hunter2" not in "\n".join(found)
    assert all(";" in line for line in found), "each says what to write"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("port: 70000", "2:16 lab1.port: 70000 cannot stand here; write a whole number from 1 to 65535"),
        ("port: '22'", '2:16 lab1.port: "22" is text, not a number; write a whole number from 1 to 65535'),
        ("port: true", "2:16 lab1.port: true is read as a truth value; write a whole number from 1 to 65535"),
        ("port: 0", "2:16 lab1.port: 0 cannot stand here; write a whole number from 1 to 65535"),
        ("user: -oProxyCommand=x", '2:16 lab1.user: "-oProxyCommand=x" starts with "-"; write a login name'),
        ("address: -x", '2:19 lab1.address: "-x" starts with "-"; write a host name'),
        ("address: 'a b'", '2:19 lab1.address: "a b" cannot stand here; write a host name'),
        ('address: "a\\nb"', '2:19 lab1.address: "a\\nb" cannot stand here'),
        ("jump: 'a,-b'", '2:16 lab1.jump[1]: "-b" starts with "-"; write [user@]address[:port]'),
        ("jump: [a, 'b c']", '2:20 lab1.jump[1]: "b c" cannot stand here; write [user@]address[:port]'),
        ("jump: 'fe80::1'", "2:16 lab1.jump[0]: "),
        ("jump: 'a,'", "2:16 lab1.jump[1]: "),
        ("jump: 'a,b:65536'", '2:16 lab1.jump[1]: "b:65536" cannot stand here; write [user@]address[:port]'),
        ("jump: '[::1]:0'", '2:16 lab1.jump[0]: "[::1]:0" cannot stand here'),
        ("usr: me", '2:10 lab1.usr: unknown key "usr"; did you mean user?'),
        ("ansible_host: x", '2:10 lab1.ansible_host: unknown key "ansible_host"; did you mean address?'),
        ("name: x", '2:10 lab1.name: unknown key "name"; write one of address, '),
        ("passphrase: x", "2:10 lab1.passphrase: a secret has no place in this file; remove it and load the key"),
        ("ssh_pass: x", "2:10 lab1.ssh_pass: a secret has no place in this file"),
        ("transport: slurm", '2:21 lab1.transport: "slurm" cannot stand here; write local, ssh, fake'),
        ("transport: Local", '2:21 lab1.transport: "Local" cannot stand here; write local'),
        ("python: 3.10", '2:18 lab1.python: 3.10 is read as a number, not as text; write "3.10", with the quotes'),
        ("timeout: .nan", "2:19 lab1.timeout: .nan cannot stand here; write a number of seconds above 0"),
        ("timeout: .inf", "2:19 lab1.timeout: .inf cannot stand here"),
        ("host_key: no", '2:20 lab1.host_key: "no" cannot stand here; write strict, accept-new or SHA256:'),
        ("groups: cuda", '2:18 lab1.groups: "cuda" cannot stand here; write a list of names'),
        ("targets: {}", "2:19 lab1.targets: {} is empty; write a target's name"),
        ("targets: [native]", "2:19 lab1.targets: this is a list; write a target's name"),
        ("targets: {a: 5}", "2:23 lab1.targets.a: 5 cannot stand here; write fields as `name: value`"),
        ("targets: {A: }", '2:20 lab1.targets.A: "A" cannot be a name'),
        ("targets: {a: {pyton: x}}", '2:24 lab1.targets.a.pyton: unknown key "pyton"; did you mean python?'),
        ("targets: {a: {backends: [cudda]}}", '2:35 lab1.targets.a.backends[0]: "cudda" cannot stand here; write cuda'),
        ("port: {a: 1}", "2:16 lab1.port: these are fields, not a value"),
    ],
)
def test_a_fault_says_where_what_and_what_to_write(fields: str, expected: str) -> None:
    assert fault(fields).startswith(f"hosts.yaml:{expected}")


def test_versions_are_text_also_where_the_key_is_unknown() -> None:
    found = faults("hosts:\n  lab1:\n    targets:\n      a:\n        torch: 2.10")
    assert found == [
        (
            'hosts.yaml:5:9 lab1.targets.a.torch: unknown key "torch"; '
            "write one of backend, backends, enabled, gpus, image, python, runtime"
        ),
        'hosts.yaml:5:16 lab1.targets.a.torch: the version 2.10 is read as a number; write "2.10", with the quotes',
    ]


def test_an_unknown_group_is_named_with_the_nearest() -> None:
    assert faults("groups: {cuda: }\nhosts: {a: {groups: [cude]}}") == [
        'hosts.yaml:2:22 a.groups[0]: there is no group "cude"; did you mean cuda?'
    ]
    assert faults("hosts: {a: {groups: [zzz]}}") == [
        'hosts.yaml:1:22 a.groups[0]: there is no group "zzz"; add `zzz:` under `groups:`'
    ]


def test_a_name_means_one_thing() -> None:
    assert "a group is called" in faults("groups: {a: }\nhosts: {a: }")[0]
    assert '"all" means every host' in faults("hosts: {all: }")[0]


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "hosts:", "hosts: {}", "hosts: []", "defaults: {port: 1}", "[]", "x", "host: {a: }"]
)
def test_a_file_without_hosts_says_what_to_write(text: str) -> None:
    assert any("`hosts:`" in line or "`name: value`" in line for line in faults(text))


@pytest.mark.parametrize("section", ["defaults: 3", "groups: [a]", "groups: {g: 3}", "extra: 1"])
def test_a_wrong_section_is_one_fault(section: str) -> None:
    [only] = faults(f"{section}\nhosts: {{a: }}")
    assert only.startswith("hosts.yaml:1:")
    assert "; " in only


def test_yaml_faults_have_the_same_form() -> None:
    assert faults("hosts:\n\ta: 1")[0].startswith("hosts.yaml:2:1 ")
    assert faults("hosts: {a: &x {port: 1}, b: {<<: *x}}") == [
        'hosts.yaml:1:30 b: merge keys ("<<") are not supported; use groups: or defaults:'
    ]


def test_not_utf8_has_its_place() -> None:
    with pytest.raises(InventoryError, match=r"^hosts\.yaml:2:4 this is not UTF-8; "):
        inventory.parse("hosts:\n  ä: x".encode("latin-1").replace(b"  ", b"   "))
    with pytest.raises(InventoryError, match="not UTF-8"):
        inventory.parse("hosts: {a: }".encode("utf-16"))


def test_a_byte_order_mark_is_no_fault() -> None:
    assert inventory.parse(b"\xef\xbb\xbfhosts: {a: }").hosts[0].name == "a"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (inventory.SIZE_LIMIT + 1))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, words in (
        (tmp_path / "absent.yaml", "there is no such file"),
        (tmp_path, "this is a directory"),
        (pipe, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (big, "larger than 1000000 bytes"),
        (tmp_path / "a\0b", "cannot be read"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(InventoryError) as caught:
            inventory.load(path)
        [only] = caught.value.faults
        assert only.startswith(f"{path}:1:1 ")
        assert words in only


@given(st.binary(max_size=200))
def test_any_bytes_give_an_inventory_or_faults(data: bytes) -> None:
    try:
        inventory.parse(data)
    except InventoryError as error:
        assert error.faults


_words = st.sampled_from(
    ["hosts", "groups", "defaults", "targets", "port", "jump", "a", "all", "A", "-x", "", "<<", "torch", "user"]
)
_values = st.recursive(
    _words | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)


@given(st.fixed_dictionaries({"hosts": st.dictionaries(_words, _values)}, optional={"groups": _values}))
def test_any_shape_gives_an_inventory_or_faults(shape: object) -> None:
    import json

    try:
        inventory.parse(json.dumps(shape).encode())
    except InventoryError as error:
        assert error.faults
        assert all("\n" not in line for line in error.faults)


def test_every_field_says_what_to_write() -> None:
    fields = {name for model in (HostsFile, HostEntry, GroupEntry, TargetSettings) for name in model.model_fields}
    assert fields == set(inventory_faults.WRITE)


# ---------------------------------------------------------------- patterns

FLEET = """
groups: {cuda: , lab: , empty: }
hosts:
  gpu-1: {groups: [cuda, lab], targets: {native: , docker: }}
  gpu-2: {groups: [cuda]}
  cpu-1: {groups: [lab], targets: {native: , docker: }}
  mac: {}
"""


def picked(*patterns: str) -> list[str]:
    hosts = inventory.select(parse(FLEET), patterns)
    return [f"{one.name}/{target.name}" for one in hosts for target in one.targets]


EVERYTHING = ["gpu-1/native", "gpu-1/docker", "gpu-2/native", "cpu-1/native", "cpu-1/docker", "mac/native"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], EVERYTHING),
        (["all"], EVERYTHING),
        (["*"], EVERYTHING),
        (["mac"], ["mac/native"]),
        (["mac", "gpu-2"], ["gpu-2/native", "mac/native"]),
        (["mac,gpu-2"], ["gpu-2/native", "mac/native"]),
        (["mac:gpu-2"], ["gpu-2/native", "mac/native"]),
        (["mac gpu-2"], ["gpu-2/native", "mac/native"]),
        (["gpu-1/docker"], ["gpu-1/docker"]),
        (["gpu-1/docker", "gpu-1"], ["gpu-1/native", "gpu-1/docker"]),
        (["gpu-*"], ["gpu-1/native", "gpu-1/docker", "gpu-2/native"]),
        (["gpu-[2-9]"], ["gpu-2/native"]),
        (["*/docker"], ["gpu-1/docker", "cpu-1/docker"]),
        (["lab/d*"], ["gpu-1/docker", "cpu-1/docker"]),
        (["all/docker"], ["gpu-1/docker", "cpu-1/docker"]),
        (["cuda"], ["gpu-1/native", "gpu-1/docker", "gpu-2/native"]),
        (["cu*"], ["gpu-1/native", "gpu-1/docker", "gpu-2/native"]),
        (["cuda:&lab"], ["gpu-1/native", "gpu-1/docker"]),
        (["cuda:!lab"], ["gpu-2/native"]),
        (["!lab:cuda"], ["gpu-2/native"]),
        (["cuda", "!gpu-2"], ["gpu-1/native", "gpu-1/docker"]),
        (["&lab"], ["gpu-1/native", "gpu-1/docker", "cpu-1/native", "cpu-1/docker"]),
        (["!lab"], ["gpu-2/native", "mac/native"]),
        (["!*/docker"], ["gpu-1/native", "gpu-2/native", "cpu-1/native", "mac/native"]),
        (["lab:cuda:&cuda:!gpu-1/native"], ["gpu-1/docker", "gpu-2/native"]),
        (["empty", "mac"], ["mac/native"]),
        (["!empty"], EVERYTHING),
        (["mac,,"], ["mac/native"]),
    ],
)
def test_patterns_select(patterns: list[str], expected: list[str]) -> None:
    assert picked(*patterns) == expected


def test_a_host_with_all_its_targets_is_the_inventorys_own() -> None:
    fleet = parse(FLEET)
    assert inventory.select(fleet, ["gpu-1"])[0] is fleet.hosts[0]
    assert len(fleet.hosts[0].targets) == 2


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("gpu1", "no host or group is called 'gpu1'", "gpu-1"),
        ("GPU-1", "no host or group is called 'GPU-1'", "gpu-1"),
        ("cudaa", "no host or group is called 'cudaa'", "cuda"),
        ("gpu-1/dcoker", "no target is called 'gpu-1/dcoker'", "gpu-1/docker"),
        ("mac:!gpu-3", "no host or group is called 'gpu-3'", "gpu-1"),
        ("mac:&labb", "no host or group is called 'labb'", "lab"),
        ("zzzzzz", "no host or group is called 'zzzzzz'", "there are gpu-1, gpu-2, cpu-1, mac, cuda (group)"),
        ("!", "no host or group is called ''", "there are"),
    ],
)
def test_an_unknown_word_names_what_comes_near(pattern: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        picked(pattern)
    assert caught.value.message == message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("pattern", ["", " ", ",:,"])
def test_an_empty_pattern_is_a_usage_error(pattern: str) -> None:
    with pytest.raises(UsageError):
        picked(pattern)


@pytest.mark.parametrize("patterns", [["x*"], ["mac:&lab"], ["mac", "!mac"], ["empty"], ["mac/x*"]])
def test_known_words_that_leave_nothing(patterns: list[str]) -> None:
    with pytest.raises(NothingSelected) as caught:
        picked(*patterns)
    assert "mac" in (caught.value.hint or "")
