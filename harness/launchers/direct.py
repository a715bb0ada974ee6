"""Start a command detached on a host, through any transport, and pick it up again by its handle.

The host's half is keeper.py.  The channel only tails: the command runs on if the connection drops,
and stops by its own deadline if nobody comes back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from harness.errors import Blocked, CommandFailed
from harness.launchers import keeper
from harness.transports.base import Completed, Transport

KEEP_HOURS = 24.0  # how long a directory that was left behind may be asked for
ACT_TIMEOUT = 60.0  # seconds for one short act
CANCEL_TIMEOUT = 60.0

# Makes the private directory.  A fixed text: the root is an argument, never part of it.
_MAKE = f"""
import json, os, stat, sys, tempfile
root = os.path.join(os.path.expanduser(sys.argv[1]) or tempfile.gettempdir(), "inductor-atlas-%d" % os.getuid())
os.makedirs(root, 0o700, exist_ok=True)
facts = os.lstat(root)
if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
    sys.exit("%s is not a private directory of this user" % root)
folder = tempfile.mkdtemp(prefix="run-", dir=root)
os.mkdir(os.path.join(folder, "work"), 0o700)
print({keeper.MARK!r} + json.dumps(dict(root=root, folder=folder, python="%d.%d" % sys.version_info[:2])))
"""


@dataclass(frozen=True)
class Place:
    """A private directory on a host and the python that acts in it."""

    root: str
    folder: str
    python: str
    python_version: str

    @property
    def result(self) -> str:
        """Path of the JSON Lines file."""
        return f"{self.folder}/{keeper.RESULT}"


@dataclass(frozen=True)
class State:
    """What a poll says.  `lost`: the command and its keeper were killed from outside."""

    state: Literal["running", "ended", "lost"]
    offset: int
    progress: str
    result_bytes: int
    result_sha256: str | None
    exit_code: int | None
    exit_reason: str | None
    survivors: tuple[int, ...]
    stderr: str


def prepare(transport: Transport, python: str, root: str | None) -> Place:
    """Make a private directory on the host; `root` is where (its temporary directory if None).

    Raises Blocked where there is no usable python or no room.
    """
    done = transport.run((python, "-c", _MAKE, root or ""), timeout=ACT_TIMEOUT)
    if done.exit_code in (126, 127):
        raise Blocked(
            f"there is no {python} on this host",
            reason="no_python",
            hint="set `python:` to its full path in hosts.yaml",
        )
    reply = _reply(done)
    version = str(reply["python"])
    if tuple(map(int, version.split("."))) < (3, 9):
        raise Blocked(f"{python} is Python {version}, the payload needs 3.9", reason="python_too_old",
                      hint="set `python:` to a newer one in hosts.yaml")  # fmt: skip
    return Place(str(reply["root"]), str(reply["folder"]), python, version)


def push(transport: Transport, place: Place, payload: Path) -> str:
    """Put payload and keeper into the directory; returns the payload's sha256 as sent."""
    data = payload.read_bytes()
    transport.put(data, f"{place.folder}/probe_payload.py", mode=0o600)
    transport.put(Path(keeper.__file__).read_bytes(), f"{place.folder}/keeper.py", mode=0o600)
    return sha256(data).hexdigest()


def start(transport: Transport, place: Place, argv: tuple[str, ...], environment: dict[str, str], deadline: float,
          expected_sha256: str) -> None:  # fmt: skip
    """Start argv detached, with a deadline in seconds; it must be the payload that was sent.

    Raises CommandFailed where it does not start or the payload arrived changed.
    """
    variables = {**environment, "TMPDIR": f"{place.folder}/work", "ATLAS_RUN_DIRECTORY": place.folder}
    job = json.dumps({"argv": argv, "environment": variables, "deadline": deadline})
    transport.put(job.encode(), f"{place.folder}/job.json", mode=0o600)
    _act(transport, place, "sweep", place.root, str(KEEP_HOURS))
    reply = _act(transport, place, "start", place.folder)
    if "error" in reply:
        raise CommandFailed(f"{reply['error']}: {reply.get('detail', '')}", reason="start")
    if reply.get("payload_sha256") != expected_sha256:
        raise CommandFailed(
            "the payload arrived changed: its sha256 on the host is not the one that was sent", reason="hash"
        )


def poll(transport: Transport, place: Place, offset: int) -> State:
    """What the command is doing; `offset` is where the last poll's progress ended."""
    reply = _act(transport, place, "poll", place.folder, str(offset))
    ended = reply.get("exit") or {}
    return State(
        state=reply["state"], offset=int(reply["offset"]), progress=str(reply["progress"]),
        result_bytes=int(reply["result_bytes"]), result_sha256=reply.get("result_sha256"),
        exit_code=ended.get("code"), exit_reason=ended.get("reason"), survivors=tuple(ended.get("survivors") or ()),
        stderr=str(reply.get("stderr", "")),
    )  # fmt: skip


def cancel(transport: Transport, place: Place) -> tuple[int, ...]:
    """End the command and everything that it started; returns the pids that would not die."""
    return tuple(_act(transport, place, "cancel", place.folder, timeout=CANCEL_TIMEOUT)["left"])


def clean(transport: Transport, place: Place) -> str | None:
    """Remove the directory; returns why it could not be, or None."""
    reply = _act(transport, place, "clean", place.folder)
    return None if reply.get("removed") else f"{place.folder}: {reply.get('why')}"


def _act(transport: Transport, place: Place, act: str, *words: str, timeout: float = ACT_TIMEOUT) -> dict[str, Any]:
    argv = (place.python, "-B", f"{place.folder}/keeper.py", act, *words)
    return _reply(transport.run(argv, timeout=timeout))


def _reply(done: Completed) -> dict[str, Any]:
    """The keeper's line out of whatever else was printed; raises CommandFailed or Blocked without one."""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(keeper.MARK):
            reply: dict[str, Any] = json.loads(line[len(keeper.MARK) :])
            return reply
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1][:300]
    command = " ".join(word if len(word) < 80 else "..." for word in done.argv)
    if done.exit_code == 0:
        raise Blocked(f"`{command}` printed no reply: a login shell or forced command answers in its place", reason="no_reply",
                      hint=f"try: ssh HOST {done.argv[0]} --version")  # fmt: skip
    raise CommandFailed(f"`{command}` ended with {done.exit_code}: {last}", reason="command_failed")
