"""What every launcher of containers knows before it acts: the spec, the host, the engine, the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import Blocked, CommandFailed
from harness.launchers.base import Place
from harness.records.containers import ContainerFacts, ContainerJob, ContainerSpec, EngineFacts, HostFacts, ImageState
from harness.runtimes import CONTAINERS, USERS, faults, run_words

# Who the command is where the host's user is root: an id that no host gives to anyone.
NOBODY = (65532, 65532)


@dataclass(frozen=True)
class ContainerLauncher:
    """One spec on one host: the pure half of a launcher of containers."""

    spec: ContainerSpec
    engine: EngineFacts
    host: HostFacts
    image: ImageState

    def wrap(
        self, place: Place, argv: tuple[str, ...], environment: Mapping[str, str], deadline: float
    ) -> tuple[str, ...]:
        """The whole command line that `start` runs; raises Blocked where a device cannot be given."""
        return CONTAINERS[self.engine.engine](argv, self.job(place, environment, deadline))

    def container_facts(self, place: Place, words: tuple[str, ...]) -> ContainerFacts:
        """What wrapped the payload, for the result; `words` are what `wrap` gave."""
        job = self.job(place, {}, 1.0)
        return ContainerFacts(
            engine=self.engine.engine, engine_version=self.engine.version, client_version=self.engine.client_version,
            rootless=self.engine.rootless, image=job.image, image_id=self.image.id,
            repo_digest=self.image.repo_digest, image_architecture=self.image.architecture,
            image_labels=self.image.labels, backend=job.backend, devices=job.devices,
            user=USERS[self.engine.engine](job), memory_bytes=run_words.memory_limit(job),
            flags=words[2 : words.index(job.image)], notes=run_words.notes(job),
        )  # fmt: skip

    def device_absent(self, said: str | None = None) -> Blocked:
        """What to say where the payload ends with `no_device`: its backend is not inside.

        `said` is what torch or the payload gave as its reason.
        """
        return faults.device_absent(self.spec.backend, self.engine, self.host, said)

    def user(self) -> tuple[int, int]:
        """Owner of the directory, who is the command too: never root where root inside is root outside."""
        if self.host.uid is None or self.host.gid is None:
            raise CommandFailed("the host did not say who its user is (`id -u`)", reason="command_failed")
        return NOBODY if self.host.uid == 0 and not self.engine.rootless else (self.host.uid, self.host.gid)

    def owner(self) -> int:
        """The host's user who runs the engine's commands: whose containers are ours."""
        return self.host.uid or 0

    def name(self, place: Place) -> str:
        """The container's name: told by the directory alone, so that it can be found again."""
        return f"{run_words.LABEL}-{self.owner()}-{place.folder.rpartition('/')[2]}"

    def job(self, place: Place, environment: Mapping[str, str], deadline: float) -> ContainerJob:
        """The record that a runtime wraps; raises pydantic's ValidationError for a path that cannot be bound."""
        uid, gid = self.user()
        return ContainerJob.model_validate({
            **self.spec.model_dump(), "name": self.name(place), "folder": place.folder, "uid": uid, "gid": gid,
            "deadline": deadline, "environment": dict(environment), "engine": self.engine, "host": self.host,
        })  # fmt: skip
