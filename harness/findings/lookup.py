"""What every finding needs: rows, targets and devices by name, facts of a cell, phrases for places."""

from __future__ import annotations

from collections.abc import Iterable

from harness.matrix import listed
from harness.records.payload import DeviceRecord
from harness.records.view import Finding, Report, ReportCell, Row, TargetView

# More places than this are counted, not named.
NAMED = 3
SENTENCE = 400


class Lookup:
    """A report with indexes over it; made once for all findings."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.rows = {(row.host, row.target, row.device): row for row in report.rows}
        self.targets = {(target.host, target.target): target for target in report.targets}
        self.devices = {
            (target.host, target.target, device.device): device
            for target in report.targets
            for device in target.devices
        }
        self.by_target: dict[tuple[str, str], list[ReportCell]] = {}
        for cell in report.cells:
            self.by_target.setdefault((cell.host, cell.target), []).append(cell)
        self._several = {host for host, target in self.targets if target != "native"}

    def row(self, cell: ReportCell) -> Row:
        """The row that a cell stands in."""
        return self.rows[cell.host, cell.target, cell.cell.device]

    def target(self, cell: ReportCell) -> TargetView:
        """The target that a cell ran on."""
        return self.targets[cell.host, cell.target]

    def device(self, cell: ReportCell) -> DeviceRecord | None:
        """The device that a cell ran on, if the host described it."""
        return self.devices.get((cell.host, cell.target, cell.cell.device))

    def host(self, host: str, target: str) -> str:
        """`gpu-a` or, where a host has targets of its own naming, `gpu-a/docker`."""
        return f"{host}/{target}" if host in self._several else host

    def place(self, cell: ReportCell) -> str:
        """`gpu-a cuda:0`."""
        return f"{self.host(cell.host, cell.target)} {cell.cell.device}"

    def places(self, cells: Iterable[ReportCell]) -> str:
        """Up to three places by name, the others as a number."""
        return some(dict.fromkeys(self.place(cell) for cell in cells))


def some(names: Iterable[str]) -> str:
    """`a, b and c`, or `a, b, c and 4 more`."""
    every = list(names)
    return listed([*every[:NAMED], f"{len(every) - NAMED} more"] if len(every) > NAMED else every)


def clip(text: str, limit: int = SENTENCE) -> str:
    """The first line that says something, shortened."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def name(cell: ReportCell) -> str:
    """The function, with its variant where that is not the plain one."""
    record = cell.cell
    return record.function if record.variant in ("f32", "float32", "default") else f"{record.function} {record.variant}"


def finding(
    group: str,
    subject: str,
    rest: str,
    cells: Iterable[ReportCell] = (),
    *,
    hosts: Iterable[str] = (),
    detail: str | None = None,
    command: str | None = None,
    command_on: str = "",
) -> Finding:
    """A finding whose sentence is `subject` + `rest`; its hosts are those of its cells and `hosts`."""
    members = list(cells)
    return Finding.model_validate(
        {
            "id": group,
            "group": group,
            "subject": subject,
            "sentence": subject + rest,
            "detail": detail,
            "command": command,
            "command_on": command_on,
            "cells": tuple(cell.key for cell in members),
            "hosts": tuple(dict.fromkeys([*(cell.host for cell in members), *hosts])),
        }
    )
