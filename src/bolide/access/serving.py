"""A door for servers that keep no messages: name servers and controllers."""

from concurrent.futures import Executor
from pathlib import Path

from bolide.access.config import AccessConfig
from bolide.access.door import Door
from bolide.access.requests import AccountRequests, UserRequests
from bolide.access.sources import Users, open_source
from bolide.clock import Clock
from bolide.remoting.handlers import Handler


def open_door(
    config: AccessConfig, home: Path, clock: Clock, file_thread: Executor, name: str
) -> tuple[Door | None, dict[int, Handler]]:
    """The door and the requests about who may enter; neither where access is not checked."""
    source = open_source(config, home)
    if source is None:
        return None, {}
    door = Door(config, source, clock, config.cluster)
    if isinstance(source, Users):
        return door, UserRequests(source, door, file_thread).handlers()
    return door, AccountRequests(source, clock, file_thread, (name, "", config.cluster)).handlers()
