"""The layout of hosts.yaml itself, before defaults and groups are applied.

A field that is not written stays unset, so that a host takes it from its groups or the defaults.
"""

from __future__ import annotations

from pydantic import Field

from harness.records.base import Name, Short, StrictRecord
from harness.records.inventory import HostSettings, TargetSettings


class GroupEntry(HostSettings):
    """What the hosts of a group take from it."""

    description: Short | None = Field(default=None, description="one line for people")
    targets: dict[Name, TargetSettings | None] = Field(
        default_factory=dict, min_length=1, description="by name; one target, native, if absent"
    )


class HostEntry(HostSettings):
    """What a host says of itself; everything else comes from its groups, then the defaults."""

    groups: tuple[Name, ...] = Field(
        default=(), description="groups of this file; where two set a field, the first wins"
    )
    targets: dict[Name, TargetSettings | None] = Field(
        default_factory=dict, min_length=1, description="by name; one target, native, if absent"
    )


class HostsFile(StrictRecord):
    """hosts.yaml: the machines to probe and how to reach them."""

    defaults: HostEntry | None = Field(
        default=None, description="what every host takes unless it or a group says otherwise"
    )
    groups: dict[Name, GroupEntry | None] | None = Field(default=None, description="by name")
    hosts: dict[Name, HostEntry | None] = Field(min_length=1, description="by name")
