"""The command line: parses, calls, prints.  The only reader of argv and of the environment."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import harness
import probe_payload
from harness import cli_images, demo, findings, inventory, matrix, outputs, plan, runner, store, wire
from harness.dialects import load as load_dialect
from harness.errors import AtlasError, NothingSelected, StoreError, UsageError
from harness.events import Event
from harness.progress import Progress, Screen, describe
from harness.records.inventory import Host
from harness.records.view import Report
from harness.records.work import Job, Outcome, PlanEntry, Selection

DOCUMENTS = {"report.md": "gfm", "report.html": "html"}
EXIT_CODES = """\
exit codes:
  0   every cell answered (unsupported and skipped ones included)
  1   some cells failed, were wrong, crashed or timed out, a host's run was cut short, or the run was interrupted
  2   a wrong word on the command line, or a fault in hosts.yaml
  3   no host answered
  4   some host is unreachable or blocked; the others answered
  5   nothing was selected, or no host has what was asked for
  70  a bug of inductor-atlas
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    code = 0  # where it is a list that nobody read to its end
    try:
        with _reader_may_leave():
            code = _run(arguments)
    except _AtOnce as stop:
        os._exit(128 + stop.number)  # workers may hang where nothing can interrupt them
    return code


def _run(arguments: argparse.Namespace) -> int:
    """Run one command; returns the exit code.  Raises BrokenPipeError where what it prints is not read."""
    try:
        code: int = arguments.run(arguments)
        return code
    except BrokenPipeError:
        raise
    except AtlasError as error:
        with _reader_may_leave():
            print(error.message, file=sys.stderr)
            if error.hint:
                print(f"  {error.hint}", file=sys.stderr)
        return error.exit_code
    except Exception:
        with _reader_may_leave():
            traceback.print_exc()
            print("this is a bug of inductor-atlas; please report it with the lines above", file=sys.stderr)
        return AtlasError.exit_code


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """`atlas ... | head`: what is printed within goes unread, which is no error and not to be tried again."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="atlas",
        description="What torch.compile generates, on every machine you own.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"inductor-atlas {harness.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        sub.add_argument(
            "--reports",
            type=Path,
            default=Path("reports"),
            metavar="DIR",
            help="where runs are kept (default: reports)",
        )
        return sub

    for name, text, run in (
        ("probe", "probe hosts and make a report", _probe),
        ("plan", "what a probe would run, and why something would be skipped", _plan),
    ):
        _add_selection(command(name, text, run))
    command("report", "make the report of a run again, from what came in", _report).add_argument(
        "which", nargs="?", default=store.LATEST, metavar="RUN", help="a run's id, the beginning of one, or latest"
    )
    _add_inventory(command("hosts", "the hosts of hosts.yaml", _hosts))
    cli_images.add_options(command("images", "build, list, verify, ship and push container images", cli_images.run))
    demonstration = command("demo", "probe a small lab of real ssh servers on this computer", _demo)
    demonstration.set_defaults(reports=Path("reports/demo"))  # not in the way of the lab's own latest report
    return parser


def _add_inventory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=Path, metavar="FILE", help="the inventory (default: hosts.yaml)")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="PATTERN", help="hosts, groups, wildcards: a,b  a:&b  a:!b"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="HOST", help="a host, host/target, group or pattern of hosts.yaml")
    parser.add_argument("--all", action="store_true", help="every host")
    _add_inventory(parser)
    parser.add_argument(
        "--device", action="append", default=[], metavar="D", help="cpu, cuda, cuda:1, rocm, xpu, mps; may be repeated"
    )
    parser.add_argument(
        "--function", action="append", default=[], metavar="F", help="one of the payload's functions; may be repeated"
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="seconds for each cell (default: hosts.yaml's cell_timeout)"
    )
    parser.add_argument(
        "--jobs", type=_positive, metavar="N", help="cells side by side on each host (default: its cores)"
    )
    parser.add_argument("--workers", type=_positive, default=16, metavar="N", help="hosts side by side (default 16)")
    parser.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="read this in place of ~/.ssh/config, as ssh -F does"
    )


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < 1e6:
            return value
    raise argparse.ArgumentTypeError(f"{text}: seconds, more than 0")


def _positive(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) >= 1:
            return value
    raise argparse.ArgumentTypeError(f"{text}: must be a whole number, 1 or more")


# ------------------------------------------------------------------ commands


def _probe(arguments: argparse.Namespace) -> int:
    entries = _entries(arguments)
    report = probe(plan.jobs(entries), arguments.reports, workers=arguments.workers, ssh_config=arguments.ssh_config)
    return _finish(report, arguments)


def _plan(arguments: argparse.Namespace) -> int:
    entries = _entries(arguments)
    if arguments.json:
        print(json.dumps([entry.model_dump(mode="json") for entry in entries], indent=1))
    for entry in entries if not arguments.json else ():
        if entry.job is None:
            print(f"{entry.host}/{entry.target}  skipped: {entry.skip}")
            continue
        host, selection = entry.job.host, entry.job.selection
        where = host.name if host.transport == "local" else f"{host.transport} {host.address or host.name}"
        what = ", ".join(selection.functions) or "all functions"
        devices = ", ".join(selection.devices) or "all found"
        limit = f"within {host.timeout:.0f} s"
        print(f"{entry.job.id}  {where}  {entry.job.target.runtime}  devices: {devices}  {what}  {limit}")
    return 0


def _report(arguments: argparse.Namespace) -> int:
    run = store.open_run(arguments.reports, arguments.which)
    return _finish(write_report(run), arguments)


def _hosts(arguments: argparse.Namespace) -> int:
    hosts = inventory.select(inventory.load(arguments.hosts), arguments.limit)
    if arguments.json:
        print(json.dumps([host.model_dump(mode="json") for host in hosts], indent=1))
        return 0
    width = max(len(host.name) for host in hosts)
    for host in hosts:
        targets = ", ".join(f"{target.name} ({target.runtime})" for target in host.targets)
        via = f" via {' '.join(str(hop) for hop in host.jump)}" if host.jump else ""
        address = "this computer" if host.transport == "local" else f"{host.transport} {host.address or host.name}{via}"
        print(f"{host.name.ljust(width)}  {address}  {targets}  {' '.join(host.groups)}".rstrip())
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    """The loopback lab; its files go with it, its report stays."""
    with _stoppable(), tempfile.TemporaryDirectory(prefix="atlas-demo-") as folder:
        with demo.lab(Path(folder, "lab")) as lab:
            with _reader_may_leave():
                for name, machine in demo.MACHINES.items():
                    print(f"{name:12} {machine.says}", file=sys.stderr)
            entries = plan.plan(lab.hosts(), Selection())
            report = probe(plan.jobs(entries), arguments.reports, workers=len(entries), ssh_config=lab.ssh_config)
        code, surprises = _finish(report, arguments), demo.surprises(report)
    with _reader_may_leave():
        for line in surprises:
            print(line, file=sys.stderr)
        print("this was the demonstration: a good run has two hosts that answer and three honest rows", file=sys.stderr)
    if code == 4 and not surprises:  # some host is unreachable or blocked; the others answered
        return 0
    return code if code not in (0, 4) else 1


# ---------------------------------------------------------------- their parts


def _entries(arguments: argparse.Namespace) -> tuple[PlanEntry, ...]:
    """The plan that the words on the command line ask for."""
    named = bool(arguments.names)
    if arguments.all == named and (named or not arguments.limit):
        raise UsageError(
            "say which hosts, or --all", hint="atlas probe localhost      atlas probe --all      atlas hosts"
        )
    known = probe_payload.list_functions(None)
    for name in arguments.function:
        if name not in known:
            raise UsageError(f"--function {name}: there is no such function", hint=f"there are: {', '.join(known)}")
    for name in arguments.device:
        if not probe_payload.is_device_word(name):
            raise UsageError(f"--device {name}: no such device", hint="cpu, mps, cuda, cuda:N, rocm, xpu, xpu:N")
    every = inventory.load(arguments.hosts)
    hosts = _both(inventory.select(every, arguments.names), inventory.select(every, arguments.limit))
    selection = Selection(devices=tuple(arguments.device), functions=tuple(arguments.function),
                          cell_timeout=arguments.timeout, jobs=arguments.jobs)  # fmt: skip
    entries = plan.plan(hosts, selection, named=set(re.split("[,: ]+", ",".join(arguments.names))))
    if not plan.jobs(entries) and arguments.run is _probe:
        raise NothingSelected("nothing to probe", hint="; ".join(entry.skip or "" for entry in entries))
    return entries


def _both(some: Sequence[Host], others: Sequence[Host]) -> tuple[Host, ...]:
    """What two selections of one inventory share, target by target; raises NothingSelected if that is nothing."""
    shared = {(host.name, target.name) for host in others for target in host.targets}
    kept = ((host, tuple(target for target in host.targets if (host.name, target.name) in shared)) for host in some)
    hosts = tuple(host.model_copy(update={"targets": targets}) for host, targets in kept if targets)
    if not hosts:
        names = ", ".join(host.name for host in some[:20])
        raise NothingSelected("--limit leaves none of the hosts that are named", hint=f"named are {names}")
    return hosts


def probe(jobs: Sequence[Job], reports: Path, *, workers: int, ssh_config: Path | None) -> Report:
    """Run the jobs, keep what comes in as it comes, write the report."""
    command = ("atlas", *sys.argv[1:])
    run = store.create(reports, jobs, command)
    cancelled = threading.Event()
    full_disk: list[StoreError] = []

    def keep(outcome: Outcome, data: bytes | None) -> None:
        try:
            if data is not None:
                run.save_result(outcome.host, outcome.target, data)
                run.save_codes(_codes_in(data))
            run.save_outcome(outcome)
        except StoreError as error:  # what is stored stays; the others are ended rather than lost one by one
            full_disk.append(error)
            cancelled.set()

    progress = Progress((job.id for job in jobs), Screen(stderr=True))

    def listen(event: Event) -> None:
        if event.step != "running":
            run.log(describe(event))
        progress(event)  # last: it may fail, where the terminal is gone

    with _interruptible(cancelled), progress:
        runner.run(jobs, keep, listen, workers=workers, cancelled=cancelled, ssh_config=ssh_config)
    if full_disk:
        raise full_disk[0]
    return write_report(run)


def _codes_in(data: bytes) -> dict[str, str]:
    try:
        return wire.parse(data).artifacts
    except AtlasError:
        return {}  # the outcome says what is wrong with the file


class _AtOnce(BaseException):
    """Unwinds what is under way, so that whoever holds something lets go of it; then the process ends."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _interruptible:
    """SIGINT and SIGTERM end the run gently, with what came in; a second one ends the process at once.

    A third does not even wait for what lets go of files and programs.
    """

    def __init__(self, cancelled: threading.Event) -> None:
        self.cancelled, self.stopping = cancelled, False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._stop)

    def __exit__(self, *_: object) -> None:
        if not self.stopping:
            for number, handler in self.before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _: object) -> None:
        if self.stopping:
            os._exit(128 + number)
        if self.cancelled.is_set():
            self.stopping = True
            raise _AtOnce(number)
        self.cancelled.set()
        with contextlib.suppress(OSError, RuntimeError):  # nobody reads; or it was printing when it was interrupted
            print("\nending the probes and keeping what came in; once more to stop at once", file=sys.stderr)


def _stoppable() -> _interruptible:
    """SIGINT and SIGTERM stop at once what has nothing to keep yet, and nothing of it stays."""
    stopped = threading.Event()
    stopped.set()
    return _interruptible(stopped)


def write_report(run: store.Run) -> Report:
    """report.json, report.md and report.html of a run, from what is stored."""
    results = run.results()
    ends = [outcome.ended for outcome, _ in results.values()]
    ended = max((end for end in ends if end), default=None) if all(ends) else None
    report = findings.add(matrix.build(run.manifest(), results, ended=ended))
    texts = matrix.code_texts(results)
    run.save_report(report, {name: load_dialect(dialect).render(report, texts) for name, dialect in DOCUMENTS.items()})
    return report


def _finish(report: Report, arguments: argparse.Namespace) -> int:
    """Print a report's short form and where the long ones are; the exit code is the report's, read or not."""
    folder, code = arguments.reports / "runs" / report.run, outputs.exit_code(report)
    with _reader_may_leave():
        if arguments.json:
            print(report.model_dump_json(indent=1))
            return code
        print(outputs.overview(report))
        print()
        for name in ("report.html", "report.md", "report.json"):
            print(f"{folder / name}")
        if code == 3:
            print(f"no host answered; see {shlex.quote(str(folder / 'log.txt'))}", file=sys.stderr)
    return code
