"""Jump hosts and ProxyCommand over real sshd programs (limits F8, F9 and F11 of Fabric)."""

from __future__ import annotations

import re
import time

import pytest

from harness.errors import AuthError, HostKeyError, Unreachable
from harness.sshconfig import route

pytestmark = pytest.mark.sshd

TRUE = ["/bin/sh", "-c", "exit 0"]


def forwarded_to(fleet, name: str) -> list[int]:
    """The ports that a machine was asked to connect on to."""
    return [
        int(port)
        for port in re.findall(r"server_request_direct_tcpip: .* target 127\.0\.0\.1 port (\d+)", fleet.log(name))
    ]


def test_f8_two_hops_are_dialled_in_order(fleet, reach) -> None:
    near, far = fleet.add("near"), fleet.add("far")
    target = fleet.add("target", behind=["near", "far"])
    transport = reach(target)
    transport.open()
    assert transport.run(TRUE, timeout=30).exit_code == 0
    assert forwarded_to(fleet, "near") == [far.port]
    assert forwarded_to(fleet, "far") == [target.port]
    assert near.port not in forwarded_to(fleet, "near") + forwarded_to(fleet, "far")


def test_f8_the_order_of_ssh_config_is_openssh_s(fleet, reach) -> None:
    fleet.add("near")
    far = fleet.add("far")
    target = fleet.add("target", behind=["near", "far"], jump=(), address="target", user=None, port=None, key=None)
    reach(target).open()
    assert forwarded_to(fleet, "near") == [far.port]


def test_f8_a_hop_on_the_target_s_own_address_is_used(fleet, reach) -> None:
    fleet.add("bastion")
    target = fleet.add("inside", behind=["bastion"])
    assert target.jump[0].startswith(target.address)
    reach(target).open()
    assert forwarded_to(fleet, "bastion") == [target.port]


@pytest.mark.parametrize("where", ["hosts.yaml", "ssh_config"])
def test_f8_jump_none_is_a_direct_connection(fleet, reach, where: str) -> None:
    fleet.add("bastion")
    target = fleet.add("target", behind=["bastion"], jump=("none",), address="target")
    if where == "ssh_config":
        target = target.model_copy(update={"jump": ()})
        config = fleet.ssh_config.read_text().replace("ProxyJump bastion", "ProxyJump none")
        fleet.ssh_config.write_text(config)
    reach(target).open()
    assert forwarded_to(fleet, "bastion") == []


def test_only_the_first_hop_keeps_its_own_jump(fleet, reach) -> None:
    fleet.add("outer")
    near = fleet.add("near", behind=["outer"])
    far = fleet.add("far", behind=["outer"])
    target = fleet.add("target", jump=("near", "far"))
    names = [hop.name for hop in route(target, config=fleet.ssh_config)]
    assert names == ["outer", "near", "far", "127.0.0.1"]
    reach(target).open()
    assert forwarded_to(fleet, "outer") == [near.port]
    assert forwarded_to(fleet, "near") == [far.port]


def test_a_loop_of_jumps_is_named(fleet, reach) -> None:
    fleet.add("bastion")
    target = fleet.add("target", behind=["bastion"], jump=(), address="target")
    fleet.ssh_config.write_text(fleet.ssh_config.read_text() + "  ProxyJump bastion\n")
    with pytest.raises(Unreachable, match="leads back to") as caught:
        reach(target).open()
    assert caught.value.hint == "in ssh_config give bastion the line: ProxyJump none"


def test_the_key_of_each_hop_is_checked(fleet, reach) -> None:
    fleet.add("impostor", known_hosts="wrong")
    target = fleet.add("target", behind=["impostor"])
    with pytest.raises(HostKeyError, match=r"target: jump host 127\.0\.0\.1: its key has changed"):
        reach(target).open()
    assert "Connection from" not in fleet.log("target")


def test_a_pin_is_the_target_s_and_not_the_hop_s(fleet, reach) -> None:
    fleet.add("bastion", known_hosts="unknown")
    target = fleet.add("target", behind=["bastion"], host_key="SHA256:" + "A" * 43)
    with pytest.raises(HostKeyError, match=r"jump host .* not known"):
        reach(target).open()


def test_a_hop_that_refuses_our_key_is_named(fleet, reach) -> None:
    fleet.add("bastion", sshd_config=["AuthorizedKeysFile none"])
    target = fleet.add("target", behind=["bastion"])
    with pytest.raises(AuthError, match="target: jump host"):
        reach(target).open()


def test_a_target_that_its_hop_cannot_reach(fleet, reach) -> None:
    fleet.add("bastion")
    target = fleet.add("target", behind=["bastion"], state="down")
    with pytest.raises(Unreachable, match="the hop before it cannot reach"):
        reach(target).open()
    assert fleet.processes("bastion") == [] or _gone(fleet, "bastion")


def test_f11_close_closes_the_gateways(fleet, reach) -> None:
    for name in ("near", "far"):
        fleet.add(name)
    transport = reach(fleet.add("target", behind=["near", "far"]))
    transport.open()
    assert all(fleet.processes(name) for name in ("near", "far", "target"))
    transport.close()
    assert all(_gone(fleet, name) for name in ("near", "far", "target"))


def test_f9_includes_are_honoured(fleet, reach) -> None:
    host = fleet.add("included", address="included", user=None, port=None, key=None)
    main = fleet.directory / "main_config"
    main.write_text(f'Include "{fleet.ssh_config}"\n')
    reach(host).open()
    fleet.ssh_config = main
    reach(host).open()


def test_proxy_command_is_run_and_ended(fleet, reach) -> None:
    bastion = fleet.add("bastion")
    target = fleet.add("target", address="target")
    config = fleet.ssh_config.read_text()
    command = f"ssh -F {fleet.directory}/plain_config -W %h:%p bastion"
    (fleet.directory / "plain_config").write_text(config)
    fleet.ssh_config.write_text(config.replace("Host target\n", f"Host target\n  ProxyCommand {command}\n"))
    transport = reach(target)
    transport.open()
    assert transport.run(TRUE, timeout=30).exit_code == 0
    assert forwarded_to(fleet, "bastion") == [target.port]
    transport.close()
    assert _gone(fleet, "bastion")
    assert bastion.port != target.port


def test_a_proxy_command_that_ends_is_noticed_before_the_deadline(fleet, reach) -> None:
    target = fleet.add("target", address="target", connect_timeout=60)
    config = fleet.ssh_config.read_text()
    fleet.ssh_config.write_text(config.replace("Host target\n", "Host target\n  ProxyCommand exit 3 # %h\n"))
    with pytest.raises(Unreachable) as caught:
        reach(target).open()
    assert "within" not in caught.value.message


def _gone(fleet, name: str) -> bool:
    """Whether a machine's sessions end; sshd needs a moment to see a closed connection."""
    for _ in range(200):
        if not fleet.processes(name):
            return True
        time.sleep(0.05)
    return False
