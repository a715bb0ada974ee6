"""What every transport does, whichever way it reaches the machine."""

from __future__ import annotations

import json

import pytest

from harness.errors import CommandFailed, DeadlineExceeded, Unreachable
from harness.transports import OUTPUT_LIMIT, Transport
from tests.contract import machines
from tests.contract.machines import Machine, program

ARGUMENTS = [
    ["plain", "two words", "  spaces around  "],
    ["it's", 'a "quoted" word', "`id`", "$(id)", "${HOME}", "$HOME"],
    [";", "&&", "|", ">", "<", "&", "#", "!", "*", "?", "[a-z]", "{a,b}", "~", "~root"],
    ["back\\slash", "\\'", "\\\\", "ends with \\", "\\n"],
    ["two\nlines", "tab\there", "\r\n", "\n"],
    ["", "", "between empty ones", ""],
    ["-x", "--long=value", "--", "-"],
    ["größer", "漢字", "🧪", "e\u0301"],
    ["K=V;touch /tmp/never", "K=V && id"],
    ["\udcff is not UTF-8"],
    ["long " + "x" * 50_000],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: ascii(arguments[0])[:20].strip())
def test_arguments_arrive_as_they_were_given(transport: Transport, arguments: list[str]) -> None:
    done = transport.run(program(machines.SHOW_ARGV, *arguments), timeout=30)
    assert json.loads(done.stdout) == arguments
    assert done.argv[3:] == tuple(arguments)
    assert done.exit_code == 0


def test_exit_code_and_both_streams(transport: Transport) -> None:
    done = transport.run(program(machines.BOTH_STREAMS), timeout=30)
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"to out", b"to err")


def test_no_output(transport: Transport) -> None:
    done = transport.run(program(machines.SUCCEED), timeout=30)
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"", b"")


def test_a_signal_is_a_negative_exit_code(transport: Transport) -> None:
    assert transport.run(program(machines.KILL_SELF), timeout=30).exit_code == -15


def test_an_unknown_program_is_127(transport: Transport) -> None:
    done = transport.run(["/no/such/program", "argument"], timeout=30)
    assert done.exit_code == 127
    assert b"/no/such/program" in done.stderr


def test_standard_input_is_empty(transport: Transport) -> None:
    assert transport.run(program(machines.READ_STDIN), timeout=30).stdout == b"0"


def test_output_is_bytes(machine: Machine, transport: Transport) -> None:
    if machine.makes_bytes:
        assert transport.run(program(machines.BINARY), timeout=30).stdout == bytes(range(256))


def test_output_is_cut_at_the_limit(transport: Transport) -> None:
    done = transport.run(program(machines.FLOOD), timeout=60)
    assert done.stdout == b"x" * OUTPUT_LIMIT
    assert done.stderr == b"y" * OUTPUT_LIMIT
    assert done.exit_code == 0


def test_a_background_process_does_not_keep_the_command(transport: Transport) -> None:
    done = transport.run(["/bin/sh", "-c", f"PATH=/usr/bin:/bin; {machines.BACKGROUND}"], timeout=30)
    assert (done.exit_code, done.stdout) == (0, b"started\n")


def test_a_deadline_ends_the_command_and_not_the_connection(transport: Transport) -> None:
    with pytest.raises(DeadlineExceeded, match="did not end within"):
        transport.run(program(machines.SLEEP), timeout=0.5)
    assert transport.run(program(machines.SUCCEED), timeout=30).exit_code == 0


@pytest.mark.parametrize("argv", [[], ["echo", "a\0b"]], ids=["empty", "nul"])
def test_what_cannot_be_an_argv_is_refused(transport: Transport, argv: list[str]) -> None:
    with pytest.raises(CommandFailed, match="cannot be run"):
        transport.run(argv, timeout=5)


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 4000], ids=["empty", "text", "a megabyte"])
def test_a_file_comes_back_as_it_went(machine: Machine, transport: Transport, data: bytes) -> None:
    path = f"{machine.directory}/a file's name"
    transport.put(data, path, mode=0o600)
    assert transport.get(path, limit=len(data)) == data


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o700], ids=oct)
def test_the_mode_is_the_one_asked_for(machine: Machine, transport: Transport, mode: int) -> None:
    path = f"{machine.directory}/mode-{mode:o}"
    transport.put(b"data", path, mode=mode)
    assert machine.mode_of(transport, path) == mode


def test_put_makes_new_files_only(machine: Machine, transport: Transport) -> None:
    path = f"{machine.directory}/once"
    transport.put(b"first", path, mode=0o600)
    with pytest.raises(CommandFailed):
        transport.put(b"second", path, mode=0o600)
    assert transport.get(path, limit=100) == b"first"


def test_put_into_a_missing_directory(machine: Machine, transport: Transport) -> None:
    with pytest.raises(CommandFailed, match="missing/file"):
        transport.put(b"data", f"{machine.directory}/missing/file", mode=0o600)


def test_get_refuses_more_than_its_limit(machine: Machine, transport: Transport) -> None:
    path = f"{machine.directory}/long"
    transport.put(b"x" * 1001, path, mode=0o600)
    with pytest.raises(CommandFailed, match="longer than 1000 bytes"):
        transport.get(path, limit=1000)
    assert len(transport.get(path, limit=1001)) == 1001


def test_get_of_a_missing_file(machine: Machine, transport: Transport) -> None:
    with pytest.raises(CommandFailed, match="nowhere"):
        transport.get(f"{machine.directory}/nowhere", limit=10)
    transport.put(b"still usable", f"{machine.directory}/after", mode=0o600)


def test_get_of_a_directory(machine: Machine, transport: Transport) -> None:
    with pytest.raises(CommandFailed, match="not a regular file"):
        transport.get(machine.directory, limit=10)


@pytest.mark.parametrize("path", ["relative/file", "~/file", ""])
def test_only_absolute_paths(transport: Transport, path: str) -> None:
    with pytest.raises(CommandFailed, match="not an absolute path"):
        transport.put(b"", path, mode=0o600)
    with pytest.raises(CommandFailed, match="not an absolute path"):
        transport.get(path, limit=10)


def test_closing_twice_and_before_opening(machine: Machine) -> None:
    transport = machine.connect()
    transport.close()
    transport.open()
    transport.close()
    transport.close()


def test_a_closed_transport_says_so(machine: Machine) -> None:
    transport = machine.connect()
    for _ in range(2):  # never opened, then opened and closed
        with pytest.raises(Unreachable, match="not connected"):
            transport.run(program(machines.SUCCEED), timeout=5)
        with pytest.raises(Unreachable, match="not connected"):
            transport.put(b"", f"{machine.directory}/x", mode=0o600)
        with pytest.raises(Unreachable, match="not connected"):
            transport.get(f"{machine.directory}/x", limit=1)
        transport.open()
        transport.close()


def test_it_can_be_opened_again(machine: Machine) -> None:
    transport = machine.connect()
    for _ in range(2):
        transport.open()
        assert transport.run(program(machines.SUCCEED), timeout=30).exit_code == 0
        transport.close()


def test_errors_name_the_host(machine: Machine, transport: Transport) -> None:
    with pytest.raises(CommandFailed) as caught:
        transport.get(f"{machine.directory}/nowhere", limit=10)
    assert caught.value.message.split(":")[0] in ("local", "plain", "no-gnu", "inside", "fake")
