"""Transport `fake`: a machine that a script plays, for demonstrations and tests.

It stands for a small host with a file system in memory and exactly the commands that its script
answers; nothing is ever executed.  Without a script it accepts connections and files, and knows no
command (exit code 127).  A script is YAML, named by `script:` in hosts.yaml:

    open: {error: unreachable, message: the lab is closed}     # optional; the connection fails
    directories: [/tmp]                                        # what `put` may write into
    files: {/etc/hostname: "lab3\\n", /tmp/result: "@result.jsonl"}   # "@": a file beside the script
    replies:                                                   # the first whose `match` is found answers
      - {match: "^uname", stdout: "Linux\\n"}
      - {match: "^mkdir (?P<dir>/.+)$", makes: ["$dir"]}        # named groups can be used in texts
      - {match: "^start (?P<dir>/.+)$", delay: 2, files: {"$dir/out": "done"}}
      - {match: "^sleep", hang: true}
      - {match: "^reboot", lost: true}

`match` is a regular expression searched in the command line, quoted as for a shell.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from string import Template
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from harness import strict_yaml
from harness.errors import AuthError, CommandFailed, DeadlineExceeded, HostKeyError, InventoryError, Unreachable
from harness.records.base import StrictRecord
from harness.records.inventory import Host
from harness.transports.base import OUTPUT_LIMIT, Completed

_OPEN_ERRORS = {"unreachable": Unreachable, "host_key": HostKeyError, "auth": AuthError}


class FakeOpen(StrictRecord):
    """How a connection attempt ends; `delay` is in seconds."""

    error: Literal["unreachable", "host_key", "auth"] | None = None
    message: str = "the script says so"
    hint: str | None = None
    delay: Annotated[float, Field(ge=0)] = 0.0


class FakeReply(StrictRecord):
    """What one kind of command does; `delay` is in seconds."""

    match: str
    stdout: str = ""
    stderr: str = ""
    repeat: Annotated[int, Field(ge=1, le=10_000_000)] = 1  # of stdout
    show_argv_from: Annotated[int, Field(ge=0)] | None = None  # stdout is the words from here on, as JSON
    exit: int = 0
    delay: Annotated[float, Field(ge=0)] = 0.0
    hang: bool = False
    lost: bool = False
    makes: tuple[str, ...] = ()  # directories
    files: dict[str, str] = Field(default_factory=dict)
    removes: tuple[str, ...] = ()  # files and directories with all that is in them


class FakeScript(StrictRecord):
    """A whole script."""

    open: FakeOpen = FakeOpen()
    directories: tuple[str, ...] = ("/tmp",)  # noqa: S108 - of a machine that does not exist
    files: dict[str, str] = Field(default_factory=dict)
    replies: tuple[FakeReply, ...] = ()


@dataclass(frozen=True)
class FakeFile:
    """One file of the machine."""

    data: bytes
    mode: int = 0o644


def load_script(path: Path) -> FakeScript:
    """Read a script; raises InventoryError with every fault of it."""
    try:
        document = strict_yaml.load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError([f"{path}: cannot be read: {error}"]) from error
    faults = [f"{path}:{f.position.line}:{f.position.column} {f.message}" for f in document.faults]
    if faults:
        raise InventoryError(faults)
    try:
        script = FakeScript.model_validate(document.data)
        for reply in script.replies:
            re.compile(reply.match)
    except ValidationError as error:
        raise InventoryError(
            [f"{path}: {'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        ) from error
    except re.error as error:
        raise InventoryError([f"{path}: replies: match {error.pattern!r}: {error}"]) from error
    return script


class FakeTransport:
    """One connection to a machine that `script` plays; its files last as long as this object.

    `sleep` is what delays and hangs wait with.
    """

    def __init__(
        self,
        host: Host,
        *,
        ssh_config: Path | None = None,  # noqa: ARG002 - one signature for all transports
        script: FakeScript | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._host = host
        self._folder = Path(host.script).expanduser().parent if host.script else Path()
        self._script = script or (load_script(Path(host.script).expanduser()) if host.script else FakeScript())
        self._sleep = sleep
        self._is_open = False
        self._directories = {"/", *self._script.directories}
        self.files: dict[str, FakeFile] = {}
        self._write(self._script.files, {})

    def open(self) -> None:
        """Connect, or fail as the script says."""
        how = self._script.open
        self._sleep(min(how.delay, self._host.connect_timeout))
        if how.delay > self._host.connect_timeout:
            raise Unreachable(f"{self._host.name}: no connection within {self._host.connect_timeout:g} s")
        if how.error is not None:
            raise _OPEN_ERRORS[how.error](f"{self._host.name}: {how.message}", hint=how.hint)
        self._is_open = True

    def close(self) -> None:
        """Disconnect; the files stay."""
        self._is_open = False

    def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        """Answer from the script; see Transport.run.  An unknown command is exit code 127."""
        self._require_open()
        words = tuple(argv)
        if not words or any("\0" in word for word in words):
            raise CommandFailed(f"{self._host.name}: {words!r} cannot be run: it is empty or holds a NUL")
        line = shlex.join(words)
        for reply in self._script.replies:
            found = re.search(reply.match, line)
            if found is not None:
                return self._answer(reply, words, found.groupdict(""), timeout)
        return Completed(words, 127, b"", f"{words[0]}: not found\n".encode("utf-8", "surrogateescape"))

    def put(self, data: bytes, path: str, *, mode: int) -> None:
        """Write a new file; see Transport.put."""
        self._require_open()
        self._require_absolute("write", path)
        if path in self.files or path in self._directories:
            raise CommandFailed(f"{self._host.name}: {path} is already there")
        if str(PurePosixPath(path).parent) not in self._directories:
            raise CommandFailed(f"{self._host.name}: cannot write {path}: No such file or directory")
        self.files[path] = FakeFile(data, mode)

    def get(self, path: str, *, limit: int) -> bytes:
        """Read a file; see Transport.get."""
        self._require_open()
        self._require_absolute("read", path)
        if path in self._directories:
            raise CommandFailed(f"{self._host.name}: cannot read {path}: not a regular file")
        if path not in self.files:
            raise CommandFailed(f"{self._host.name}: cannot read {path}: No such file or directory")
        data = self.files[path].data
        if len(data) > limit:
            raise CommandFailed(f"{self._host.name}: {path} is longer than {limit} bytes", reason="too_long")
        return data

    def _answer(self, reply: FakeReply, words: tuple[str, ...], groups: dict[str, str], timeout: float) -> Completed:
        self._sleep(timeout if reply.hang else min(reply.delay, timeout))
        if reply.hang or reply.delay > timeout:
            raise DeadlineExceeded(f"{self._host.name}: {shlex.join(words)[:200]} did not end within {timeout:g} s")
        if reply.lost:
            self._is_open = False
            raise Unreachable(
                f"{self._host.name}: the connection was lost while running {shlex.join(words)[:200]}",
                reason="connection_lost",
            )
        self._directories.update(_fill(path, groups) for path in reply.makes)
        self._write(reply.files, groups)
        for path in reply.removes:
            self._remove(_fill(path, groups))
        text = _fill(reply.stdout, groups)
        if reply.show_argv_from is not None:
            text = json.dumps(words[reply.show_argv_from :])
        stdout = (text.encode() * reply.repeat)[:OUTPUT_LIMIT]
        return Completed(words, reply.exit, stdout, _fill(reply.stderr, groups).encode()[:OUTPUT_LIMIT])

    def _write(self, files: dict[str, str], groups: dict[str, str]) -> None:
        for path, text in files.items():
            data = (self._folder / text[1:]).read_bytes() if text.startswith("@") else _fill(text, groups).encode()
            target = _fill(path, groups)
            self._directories.update(str(parent) for parent in PurePosixPath(target).parents)
            self.files[target] = FakeFile(data)

    def _remove(self, path: str) -> None:
        inside = f"{path.rstrip('/')}/"
        self.files = {name: file for name, file in self.files.items() if name != path and not name.startswith(inside)}
        self._directories = {name for name in self._directories if name != path and not name.startswith(inside)}

    def _require_open(self) -> None:
        if not self._is_open:
            raise Unreachable(f"{self._host.name}: not connected")

    def _require_absolute(self, verb: str, path: str) -> None:
        if not path.startswith("/") or "\0" in path:
            raise CommandFailed(f"{self._host.name}: cannot {verb} {path!r}: not an absolute path")


def _fill(text: str, groups: dict[str, str]) -> str:
    return Template(text).safe_substitute(groups)
