"""What a person sees while a run goes on: a live table on a terminal, a plain line a change elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.dialects.visible import one_line
from harness.events import Event

STYLES = {
    "answered": "green", "running": "cyan", "cell": "cyan", "queued": "dim", "retrying": "yellow", "noted": "yellow",
}  # fmt: skip
# Steps that are news in a log; the others only move the live table.
NEWS = ("connecting", "cell", "noted", "retrying", "ended")


class Screen(Console):
    """A console that falls silent when nobody reads it any more; rich's own would end the program."""

    def on_broken_pipe(self) -> None:
        """Called by rich where a write met a closed pipe (`atlas probe ... | head`)."""
        self.quiet = True


class _Row:
    def __init__(self) -> None:
        self.step, self.text, self.cells = "queued", "", 0
        self.since: float | None = None
        self.until: float | None = None


class Progress:
    """A listener for a run's events, and a context that shows them; safe to call from any thread."""

    def __init__(self, jobs: Iterable[str], console: Console) -> None:
        self.console, self.lock = console, threading.Lock()
        self.rows = {job: _Row() for job in jobs}
        self.live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.live = Live(get_renderable=self._table, console=self.console, refresh_per_second=4, transient=True)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self.live.stop()

    def __call__(self, event: Event) -> None:
        with self.lock:
            row = self.rows[event.job]
            row.step = event.outcome.status if event.outcome else event.step
            row.text = event.text
            row.cells += event.step == "cell"
            row.since = row.since or (time.monotonic() if event.step != "queued" else None)
            row.until = time.monotonic() if event.outcome else None
        if self.live is None and event.step in NEWS:
            self.console.print(Text(describe(event)), soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("host", "state", "cells", "seconds", "what"):
            table.add_column(name, justify="right" if name in ("cells", "seconds") else "left", no_wrap=True)
        with self.lock:
            for job, row in self.rows.items():
                spent = "" if row.since is None else f"{(row.until or time.monotonic()) - row.since:.0f}"
                state = Text(row.step, style=STYLES.get(row.step, "red"))
                table.add_row(job, state, str(row.cells or ""), spent, Text(one_line(row.text)[:80]))
        return table


def describe(event: Event) -> str:
    """One plain line."""
    state = event.outcome.status if event.outcome else event.step
    words = [event.job, state]
    if event.outcome and event.outcome.reason:
        words.append(f"({event.outcome.reason})")
    if event.text:
        words.append(event.text.removeprefix("cell "))
    return one_line(" ".join(words))
