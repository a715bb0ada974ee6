"""--limit patterns -> hosts, as Ansible's users know them.

    lab1            a host, or every host of a group       all         every host
    lab1/docker     one target of it                       gpu-*       wildcards, in every place
    a,b   a:b       either                                 a:&b        both      a:!b   a without b

Unions are made first, then intersections, then exclusions, whatever their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from harness.errors import NothingSelected, UsageError
from harness.records.inventory import Host, Inventory

ALL = "all"

# A host's and a target's name: what a pattern selects in the end.
_Pick = tuple[str, str]


def select(inventory: Inventory, patterns: Sequence[str]) -> tuple[Host, ...]:
    """The hosts that the patterns name, in the order of the file, each with only its selected targets.

    No pattern selects everything.  Raises UsageError for a word that names nothing here (with the
    names that come near), NothingSelected where the words are known but leave no target.
    """
    everything = {(host.name, target.name) for host in inventory.hosts for target in host.targets}
    if not patterns:
        return inventory.hosts
    terms = [term for pattern in patterns for term in re.split(r"[,:]", pattern.replace(" ", ",")) if term]
    if not terms:
        raise UsageError("the pattern is empty", hint="name a host, a group, or all")
    wanted = [term for term in terms if term[0] not in "&!"]
    picked = set[_Pick]().union(*(_match(inventory, term) for term in wanted)) if wanted else everything
    for term in terms:
        if term[0] == "&":
            picked &= _match(inventory, term[1:])
    for term in terms:
        if term[0] == "!":
            picked -= _match(inventory, term[1:])
    if not picked:
        raise NothingSelected(f"{' '.join(patterns)!r} selects no host", hint=f"there are {_listed(inventory)}")
    return tuple(_narrowed(host, picked) for host in inventory.hosts if any(host.name == name for name, _ in picked))


def _match(inventory: Inventory, term: str) -> set[_Pick]:
    """What one word names; a word without a wildcard must name something."""
    host_word, slash, target_word = term.partition("/")
    hosts = [host for host in inventory.hosts if _named(host, host_word)]
    picks = {
        (host.name, target.name)
        for host in hosts
        for target in host.targets
        if not slash or fnmatchcase(target.name, target_word)
    }
    is_wild = any(character in term for character in "*?[")
    is_empty_group = not slash and any(group.name == term for group in inventory.groups)
    if not picks and not is_wild and not is_empty_group:
        raise _unknown(inventory, term, hosts if slash else [])
    return picks


def _named(host: Host, word: str) -> bool:
    return word == ALL or any(fnmatchcase(name, word) for name in (host.name, *host.groups))


def _narrowed(host: Host, picked: set[_Pick]) -> Host:
    targets = tuple(target for target in host.targets if (host.name, target.name) in picked)
    return host if targets == host.targets else host.model_copy(update={"targets": targets})


def _unknown(inventory: Inventory, term: str, hosts: Iterable[Host]) -> UsageError:
    """The error for a word that names nothing; `hosts` are those that its part before the slash named."""
    known = [f"{host.name}/{target.name}" for host in hosts for target in host.targets]
    what = "target" if known else "host or group"
    if not known:
        known = [*(host.name for host in inventory.hosts), *(group.name for group in inventory.groups), ALL]
    near = get_close_matches(term.lower(), known, n=3, cutoff=0.5)
    return UsageError(
        f"no {what} is called {term!r}",
        hint=f"did you mean {' or '.join(near)}?" if near else f"there are {_listed(inventory)}",
    )


def _listed(inventory: Inventory) -> str:
    names = [host.name for host in inventory.hosts] + [f"{group.name} (group)" for group in inventory.groups]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
