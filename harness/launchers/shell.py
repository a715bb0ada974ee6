"""The host's half where the engine keeps the command: fixed texts for /bin/sh, no python needed there.

What differs from run to run is an argument, never part of a text.  Only POSIX utilities and what every
Linux and macOS has beside them (mktemp, head -c).  Replies are marked lines, so that a login banner
cannot pass for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import Blocked, CommandFailed
from harness.transports.base import Completed

MARK = b"ATLAS-HOST "

# Before each of the texts: a reply, and the KiB that are free where a path lies (empty where `df` says no number).
_PRELUDE = r"""
say() { printf 'ATLAS-HOST %s\n' "$1"; }
free() {
  df -Pk "$1" | tail -n 1 | { read -r _ _ _ blocks _; case $blocks in *[!0-9]*) ;; *) echo "$blocks" ;; esac; }
}
"""

# root, engine, owner (uid:gid or empty), free KiB wanted -> root=, folder=
PREPARE = r"""
umask 077
case $1 in
  '') base=${TMPDIR:-/tmp} ;;
  '~') base=$HOME ;;
  '~/'*) base=$HOME/${1#'~/'} ;;
  *) base=$1 ;;
esac
case $base in /*) ;; *) echo "$base is no absolute path" >&2; exit 1 ;; esac
uid=$(id -u)
root=${base%/}/inductor-atlas-$uid
attempt=0
folder=
while [ -z "$folder" ] && [ "$attempt" -lt 9 ]; do
  attempt=$((attempt + 1))
  mkdir -p "$root" || exit 1
  case $(ls -ldn "$root" | { read -r mode _ owner _; echo "$mode $owner"; }) in
    drwx------" $uid"|drwx------[.+@]" $uid") ;;
    ' ') continue ;;
    *) echo "$root is not a private directory of this user" >&2; exit 1 ;;
  esac
  folder=$(mktemp -d "$root/run-XXXXXXXXXX") || { [ -d "$root" ] && exit 1; }
done
[ -n "$folder" ] || exit 1
fail() { echo "$1" >&2; cd /; rm -rf "$folder"; rmdir "$root" 2>/dev/null; exit 1; }
free=$(free "$folder")
case $free in
  '') ;;
  *) [ "$free" -ge "$4" ] || fail "No space left on device: $base has $free KiB free, a run needs $4" ;;
esac
work=$folder/work
mkdir "$work" && echo "$2" >"$folder/container" || fail "cannot write in $folder"
printf '#!/bin/sh\n' >"$work/try" && chmod 700 "$work/try" || fail "cannot write in $folder"
"$work/try" 2>/dev/null || fail "noexec: programs cannot run from $base"
rm "$work/try"
if [ -n "$3" ]; then chown -R "$3" "$folder" || fail "cannot give $folder to $3"; fi
say "root=$root"
say "folder=$folder"
"""

# folder, offset, most bytes, "hash" or "" -> numbers, then two texts of known length.
# A link is not followed: the command could have put it there.
POLL = r"""
size() {
  if [ -f "$1" ] && [ ! -L "$1" ]; then bytes=$(wc -c <"$1") && echo "$((bytes))" || echo 0; else echo 0; fi
}
result=$(size "$1/result.jsonl")
say "result=$result"
[ -n "$4" ] && say "free=$(free "$1")"
if [ -n "$4" ] && [ "$result" -gt 0 ]; then
  for program in sha256sum 'shasum -a 256'; do
    command -v "${program%% *}" >/dev/null 2>&1 || continue
    sum=$($program <"$1/result.jsonl") && say "sha256=${sum%% *}" && break
  done
fi
take=$(($(size "$1/progress.log") - $2))
[ "$take" -gt "$3" ] && take=$3
[ "$take" -lt 0 ] && take=0
say "progress=$take"
[ "$take" -gt 0 ] && tail -c "+$(($2 + 1))" "$1/progress.log" | head -c "$take"
echo
take=$(size "$1/stderr.log")
[ "$take" -gt 2000 ] && take=2000
say "stderr=$take"
[ "$take" -gt 0 ] && tail -c "$take" "$1/stderr.log"
exit 0
"""

# folder
REMOVE = r"""
case $1 in /*/inductor-atlas-*/run-*/*|*..*) exit 2 ;; /*/inductor-atlas-*/run-*) ;; *) exit 2 ;; esac
[ -d "$1" ] && chmod -R u+rwX "$1" 2>/dev/null
rm -rf "$1"
rmdir "${1%/*}" 2>/dev/null
if [ -e "$1" ]; then say "removed=no"; else say "removed=yes"; fi
"""

# root, engine, minutes, prefix of names, then the names of containers that exist: removes directories
# of this engine without a container in which nothing was written for so long.
SWEEP = r"""
root=$1; engine=$2; minutes=$3; prefix=$4; shift 4
for folder in "$root"/run-*; do
  [ -d "$folder" ] && [ ! -L "$folder" ] && [ -f "$folder/container" ] && [ ! -L "$folder/container" ] || continue
  [ "$(head -c 20 "$folder/container")" = "$engine" ] || continue
  for name; do [ "$name" = "$prefix${folder##*/}" ] && continue 2; done
  [ -z "$(find "$folder" -maxdepth 1 -mmin "-$minutes" | head -n 1)" ] || continue
  chmod -R u+rwX "$folder" 2>/dev/null
  rm -rf "$folder" && say "removed=$folder"
done
say "swept=yes"
"""

# -> the host's own clock, which is the engine's too
NOW = 'say "now=$(date +%s)"'


@dataclass(frozen=True)
class Reading:
    """What a script said: single words by name, and the texts that followed a length."""

    words: dict[str, str]
    texts: dict[str, bytes]
    lists: dict[str, tuple[str, ...]]


def script(text: str, *words: str) -> tuple[str, ...]:
    """The argv that runs one of the texts above."""
    return ("/bin/sh", "-c", _PRELUDE + text, "atlas", *words)


def read(done: Completed, *, texts: Sequence[str] = ()) -> Reading:
    """The marked lines of a script's output; `texts` are the names whose value is a length.

    Raises Blocked for a full or unsuitable disk, CommandFailed for anything else that went wrong.
    """
    if done.exit_code != 0:
        raise _refusal(done)
    words: dict[str, str] = {}
    found: dict[str, bytes] = {}
    lists: dict[str, tuple[str, ...]] = {}
    rest = done.stdout
    while MARK in rest:
        line, _, rest = rest[rest.index(MARK) + len(MARK) :].partition(b"\n")
        key, _, value = line.decode("utf-8", "replace").partition("=")
        words[key] = value.strip()
        lists[key] = (*lists.get(key, ()), value.strip())
        if key in texts and value.strip().isdigit():
            length = int(value)
            found[key], rest = rest[:length], rest[length:]
    if not words:
        raise Blocked("a script for /bin/sh printed no reply: a login shell or forced command answers in its place",
                      reason="no_reply", hint="try: ssh HOST /bin/sh -c true")  # fmt: skip
    return Reading(words, found, lists)


def number(reading: Reading, key: str) -> int:
    """A count of the reply; 0 where it is none."""
    word = reading.words.get(key, "")
    return int(word) if word.isdigit() and len(word) < 19 else 0


def _refusal(done: Completed) -> Blocked | CommandFailed:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = lines[-1][:400] if lines else f"/bin/sh ended with {done.exit_code}"
    elsewhere = "set `workdir:` of this host in hosts.yaml to another file system"
    if "No space left" in said or "quota" in said:
        return Blocked(said, reason="disk_full", hint=f"df -h on the host, or {elsewhere}")
    if "noexec" in said:
        return Blocked(said, reason="noexec", hint=elsewhere)
    if "Permission denied" in said or "Read-only" in said or "not a private directory" in said:
        return Blocked(said, reason="no_writable_dir", hint=elsewhere)
    return CommandFailed(f"the host's /bin/sh: {said}", reason="command_failed")
