"""What a transport between processes needs of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

# How packets get on their way: (array to send or receive, other rank) of both kinds, and their tag; what it returns
# waits until all have arrived or gone.
Post = Callable[[list[tuple[Any, int]], list[tuple[Any, int]], int], Callable[[], None]]


class Company(Protocol):
    """The processes of a run, as a transport between them sees them; ``rank`` is this one."""

    rank: int
    size: int

    def tell(self, name: str, value: str) -> None:
        """Leave a word for the others, under this rank's number."""

    def heard_from(self, name: str, rank: int) -> str:
        """What a rank leaves under a name, once it has."""

    def post(self, backend: str) -> Post:
        """Packets through a backend of torch.distributed. The first call for a backend is one of all processes."""
