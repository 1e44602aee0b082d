"""What is opened and closed: by `async with`, or by hand with `start` and `close`."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Opened(ABC):
    """Open while its `async with` block runs."""

    @abstractmethod
    async def start(self) -> None:
        """Open it; `async with` does it."""

    @abstractmethod
    async def close(self) -> None:
        """End what it holds; the end of `async with` does it."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
