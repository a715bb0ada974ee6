"""docs/ says what the program does: options, exit codes, fields, words."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import cli
from harness.records import HostEntry, TargetSettings
from harness.records.work import OutcomeStatus
from harness.schemas import documents

ROOT = Path(__file__).resolve().parents[2]
CLI = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
RECORDS = (ROOT / "docs/records.md").read_text(encoding="utf-8")


def table(document: str, head: str) -> list[list[str]]:
    """The rows of the first table whose head begins so, backquotes taken off."""
    _, found, rest = document.partition(f"| {head}")
    assert found, f"there is no table that begins with {head}"
    rows = []
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")])
    return rows


def commands() -> dict[str, argparse.ArgumentParser]:
    (sub,) = (action for action in cli._parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(sub.choices)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Each option as the help shows it, with its value's name."""
    return {
        f"{action.option_strings[-1]} {action.metavar}" if action.metavar else action.option_strings[-1]
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }


# ------------------------------------------------------------------ docs/cli.md


def test_every_command_is_there() -> None:
    assert [row[0].split()[1] for row in table(CLI, "command")] == list(commands())


def test_every_option_is_there_with_the_commands_that_take_it() -> None:
    documented: dict[str, set[str]] = {name: set() for name in commands()}
    for option, takers, _ in table(CLI, "option"):
        for name in commands() if takers == "all" else takers.split(", "):
            documented[name].add(option)
    assert documented == {name: options_of(parser) for name, parser in commands().items()}


def test_exit_codes_are_those_of_the_help() -> None:
    said = re.findall(r"^  (\d+) +(.+)$", cli.EXIT_CODES, flags=re.M)
    assert [tuple(row) for row in table(CLI, "code")] == said


def test_every_field_of_a_host_is_there() -> None:
    assert {row[0] for row in table(CLI, "field of a host")} == set(HostEntry.model_fields)


def test_the_defaults_of_a_host_are_the_records() -> None:
    for name, default, *_ in table(CLI, "field of a host"):
        value = HostEntry.model_fields[name].default
        if isinstance(value, float | int):
            assert float(default) == value, name
        elif name in ("transport", "host_key"):
            assert default == value


def test_every_field_of_a_target_is_there() -> None:
    assert {row[0] for row in table(CLI, "field of a target")} == set(TargetSettings.model_fields)


# ------------------------------------------------------------------ docs/records.md


def test_the_generated_part_is_fresh() -> None:
    assert documents.render(RECORDS) == RECORDS, "type: make schemas"


def test_the_generated_part_is_written_between_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "records.md"
    path.write_text(f"before\n{documents.BEGIN}\nstale\n{documents.END}\nafter\n")
    assert documents.write(path) is True
    text = path.read_text()
    assert text.startswith(f"before\n{documents.BEGIN}\n") and text.endswith(f"{documents.END}\nafter\n")
    assert "stale" not in text
    assert documents.write(path) is False


def test_without_markers_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "records.md").write_text("other words")
    with pytest.raises(ValueError, match="lacks its markers"):
        documents.write(tmp_path / "records.md")
    assert documents.write(tmp_path / "absent.md") is False


def test_links_to_records_lead_somewhere() -> None:
    headings = {name.lower() for name in re.findall(r"^### (\w+)$", RECORDS, flags=re.M)}
    links = set(re.findall(r"\]\(#(\w+)\)", RECORDS))
    assert links and links <= headings


def test_every_status_of_a_target_is_there() -> None:
    assert {row[0] for row in table(RECORDS, "status")} == set(OutcomeStatus.__args__)


def reasons_in(path: Path) -> Iterator[str]:
    """The reason codes that a module of the harness gives, as they stand in its text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.keyword(arg="reason", value=value) | ast.Assign(targets=[ast.Name(id="reason")], value=value):
                pass
            case ast.Call(func=ast.Attribute(attr="outcome"), args=[_, value, *_]):
                pass
            case _:
                continue
        choices = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
        yield from (str(choice.value) for choice in choices if isinstance(choice, ast.Constant) and choice.value)


def test_every_reason_of_a_target_is_there() -> None:
    rooms = (".", "transports", "launchers", "runtimes", "images")
    files = [path for room in rooms for path in (ROOT / "harness" / room).glob("*.py")]
    given = {reason for path in files if path.name != "keeper.py" for reason in reasons_in(path)}
    assert {"no_python", "killed", "no_result", "host_key", "harness_stopped"} <= given, "the search finds them"
    assert {row[0] for row in table(RECORDS, "reason")} == given
