"""The run folder: plain files, each written whole or not at all.

    reports/
      runs/<id>/run.json                          who, when, which command, which jobs
                hosts/<host>/<target>.jsonl       what the payload wrote, byte for byte
                hosts/<host>/<target>.outcome.json
                report.json, report.md, report.html, log.txt
      objects/<sha256>.gz                         each generated code once for all runs
      latest -> runs/<id>                         the newest that was started

A run that was killed lacks outcomes or a report, never half a file; `load` reads what is there.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ValidationError

import harness
import probe_payload
from harness import wire
from harness.errors import StoreError, WireError
from harness.records.payload import Result
from harness.records.view import Report
from harness.records.work import Job, JobSummary, Outcome, RunManifest

_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
LATEST = "latest"


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_atomic(path: Path, data: bytes) -> None:
    """Whole or not at all, readable by the file's usual permissions; raises StoreError on a full disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
                Path(file.name).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(file.name).unlink()
                raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}", hint=f"df -h {path.parent}") from error


class Run:
    """One run's folder."""

    def __init__(self, root: Path, run_id: str) -> None:
        self.root, self.id = root, run_id
        self.folder = root / "runs" / run_id

    def _job(self, host: str, target: str, suffix: str) -> Path:
        return self.folder / "hosts" / host / f"{target}{suffix}"

    def save_result(self, host: str, target: str, data: bytes) -> None:
        """What the payload wrote."""
        write_atomic(self._job(host, target, ".jsonl"), data)

    def save_outcome(self, outcome: Outcome) -> None:
        """How the job ended."""
        write_atomic(self._job(outcome.host, outcome.target, ".outcome.json"), _dump(outcome))

    def save_codes(self, texts: Mapping[str, str]) -> None:
        """Each text under the hash that is computed here."""
        for text in texts.values():
            data = text.encode("utf-8")
            path = self.root / "objects" / f"{sha256(data).hexdigest()}.gz"
            if not path.exists():
                write_atomic(path, gzip.compress(data, mtime=0))

    def save_report(self, report: Report, documents: Mapping[str, str]) -> None:
        """report.json, and each document (file name -> text)."""
        write_atomic(self.folder / "report.json", _dump(report))
        for name, text in documents.items():
            write_atomic(self.folder / name, text.encode("utf-8"))

    def log(self, line: str) -> None:
        """Append one line to log.txt, with its time; a full disk costs the line, since what matters is stored above."""
        with contextlib.suppress(OSError), (self.folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{now()} {line}\n")

    def manifest(self) -> RunManifest:
        """run.json; raises StoreError where it is missing, broken, or newer than this version."""
        path = self.folder / "run.json"
        try:
            manifest = RunManifest.model_validate_json(path.read_bytes())
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}", hint="ls reports/runs") from error
        except ValidationError as error:
            raise StoreError(f"{path}: not a run: {error.errors()[0]['msg']}") from error
        if _major(manifest.schema_version) > _major(probe_payload.SCHEMA_VERSION):
            raise StoreError(
                f"{path}: written by a newer inductor-atlas (schema {manifest.schema_version}); update this one"
            )
        return manifest

    def results(self) -> dict[str, tuple[Outcome, Result | None]]:
        """`host/target` -> outcome and checked result, for every job; without an outcome it is not_run or partial."""
        return {f"{job.host}/{job.target}": self._result(job) for job in self.manifest().jobs}

    def _result(self, job: JobSummary) -> tuple[Outcome, Result | None]:
        result, fault = self._stored(job)
        outcome = self._outcome(job, result)
        if fault is not None and outcome.reason not in ("harness_stopped", "outcome"):
            outcome = outcome.model_copy(update={"status": "failed", "reason": "result", "message": fault})
        elif outcome.status == "answered" and result is not None and (lack := wire.lack(result)):
            outcome = outcome.model_copy(update={"status": wire.part(result), "reason": "incomplete", "message": lack})
        return outcome, result

    def _stored(self, job: JobSummary) -> tuple[Result | None, str | None]:
        """The result as it is stored, or why there is none of it to read."""
        path = self._job(job.host, job.target, ".jsonl")
        try:
            return wire.parse(path.read_bytes()), None
        except FileNotFoundError:
            return None, None
        except OSError as error:
            return None, f"{path}: {error.strerror}"
        except WireError as error:
            return None, error.message

    def _outcome(self, job: JobSummary, result: Result | None) -> Outcome:
        """The outcome as it is stored; one that is missing or broken costs that row, not the report."""
        path = self._job(job.host, job.target, ".outcome.json")
        came = result is not None and bool(result.cells)
        try:
            outcome = Outcome.model_validate_json(path.read_bytes())
            if (outcome.host, outcome.target) == (job.host, job.target):
                return outcome
            what = "it is another target's"
        except FileNotFoundError:
            return Outcome(host=job.host, target=job.target, status="partial" if came else "not_run",
                           reason="harness_stopped",
                           message="the harness was stopped before this target ended")  # fmt: skip
        except OSError as error:
            what = str(error.strerror)
        except ValidationError as error:
            what = error.errors()[0]["msg"]
        return Outcome(host=job.host, target=job.target, status="partial" if came else "failed", reason="outcome",
                       message=f"how this target ended cannot be read: {path.name}: {what}")  # fmt: skip


def create(root: Path, jobs: Sequence[Job], command: Sequence[str]) -> Run:
    """A new run: its folder, run.json, and `latest` pointing to it."""
    started = datetime.now(timezone.utc)
    run = Run(root, f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
    manifest = RunManifest(
        run=run.id,
        harness_version=harness.__version__,
        command=tuple(command),
        started=started.isoformat(timespec="seconds"),
        jobs=tuple(
            JobSummary(host=job.host.name, target=job.target.name, transport=job.host.transport, groups=job.host.groups,
                       timeout=job.host.timeout)
            for job in jobs
        ),
    )  # fmt: skip
    write_atomic(run.folder / "run.json", _dump(manifest))
    _point_latest(root, run.id)
    return run


def open_run(root: Path, word: str = LATEST) -> Run:
    """The run of an id, an unambiguous beginning of one, or `latest`; raises StoreError naming what there is."""
    ids = sorted(ids_in(root))
    if word == LATEST:
        target = root / LATEST
        if target.is_symlink() and _ID.fullmatch(target.readlink().name):
            return Run(root, target.readlink().name)
        found = ids[-1:]
    else:
        found = [run_id for run_id in ids if run_id.startswith(word)]
    if len(found) == 1:
        return Run(root, found[0])
    have = ", ".join(ids[-5:]) or "none yet"
    what = "is not a run" if not found else f"could be {', '.join(found[:5])}"
    raise StoreError(f"{word} {what} in {root}/runs; the newest there: {have}", hint="make probe HOST=localhost")


def ids_in(root: Path) -> Iterator[str]:
    """Ids of all runs."""
    if (root / "runs").is_dir():
        yield from (path.name for path in (root / "runs").iterdir() if _ID.fullmatch(path.name))


def _point_latest(root: Path, run_id: str) -> None:
    temporary, latest = root / f".{LATEST}.{run_id}", root / LATEST
    try:
        temporary.symlink_to(Path("runs", run_id))
        temporary.replace(latest)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(
            f"{latest}: cannot become a link: {error.strerror}", hint=f"mv {latest} {latest}.old"
        ) from error


def _dump(record: BaseModel) -> bytes:
    return (record.model_dump_json(indent=1) + "\n").encode("utf-8")


def _major(version: str) -> int:
    head = version.split(".")[0]
    return int(head) if head.isdigit() else 2**30
