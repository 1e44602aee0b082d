"""What takes longer than a request: it goes on without its page, tells how far it is, and can be stopped."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from bolide.admin.deadletters import Resent
from bolide.errors import ClientError

JOBS_MAX = 4
KEPT_MAX = 32
RESENT_MAX = 100_000


@dataclass(slots=True)
class Job:
    """One resending of dead letters."""

    id: str
    group: str
    total: int
    told: Resent = field(default_factory=Resent)
    state: str = "running"
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def done_count(self) -> int:
        return self.told.sent_count + self.told.failed_count


class Jobs:
    """Those that run, the last that ended, and which letters were sent again since the dashboard runs."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._resent: dict[str, None] = {}

    def begin(self, group: str, total: int, start: Callable[[Job], asyncio.Task[None]]) -> Job:
        """One more; raises ClientError where too many run."""
        if sum(job.is_running for job in self._jobs.values()) >= JOBS_MAX:
            raise ClientError(f"{JOBS_MAX} resendings run already; stop one, or wait")
        while len(self._jobs) >= KEPT_MAX:
            del self._jobs[next(iter(self._jobs))]
        job = Job(secrets.token_urlsafe(12), group, total)
        self._jobs[job.id] = job
        job.task = start(job)
        return job

    def find(self, job_id: str, group: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None or job.group != group:
            raise ClientError("no such resending is known: it ended long ago, or the dashboard was started again", 22)
        return job

    def stop(self, job: Job) -> None:
        if job.is_running and job.task is not None:
            job.state = "stopped"
            job.task.cancel()

    def note_resent(self, letter_id: str) -> None:
        """Remember a letter that was sent again, by the broker's id of it."""
        while len(self._resent) >= RESENT_MAX:
            del self._resent[next(iter(self._resent))]
        self._resent[letter_id] = None

    def was_resent(self, letter_id: str) -> bool:
        return letter_id in self._resent
