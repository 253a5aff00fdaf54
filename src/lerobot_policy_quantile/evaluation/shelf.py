"""The models a policy replica holds: one, and two while its simulators move from one policy to the next."""

import asyncio
from collections.abc import Callable

from lerobot_policy_quantile.contract import Policy

MOST = 2
"""Models at once: the one whose last episodes are running, and the one that comes after it."""


class Shelf:
    """Policies by name. One in use stays; one that no episode uses makes room for the next."""

    def __init__(self, load: Callable[[str], Policy]) -> None:
        self._load = load
        self._held: dict[str, Policy] = {}
        self._users: dict[int, str] = {}
        self._gone: set[int] = set()
        self._room = asyncio.Event()

    async def take(self, user: int, name: str) -> Policy:
        """The policy of that name, which `user` holds from now on in place of whatever it held before.

        Waits while `MOST` others are in use; whoever uses them goes on, so the wait ends.
        """
        self.give_back(user)
        while name not in self._held:
            self._drop_unused()
            if len(self._held) < MOST:
                self._held[name] = self._load(name)
                break
            self._room.clear()
            await self._room.wait()
            if user in self._gone:  # it waited for a model and died; nobody else would give it back
                raise RuntimeError(f"simulator {user} is gone")
        self._users[user] = name
        return self._held[name]

    def give_back(self, user: int) -> None:
        """The user's episode has ended."""
        if self._users.pop(user, None) is not None:
            if len(self._held) > 1:
                self._drop_unused()
            self._room.set()

    def leave(self, user: int) -> None:
        """The user is gone, in the middle of an episode or while it waited."""
        self._gone.add(user)
        self.give_back(user)
        self._room.set()

    def _drop_unused(self) -> None:
        for name in [name for name in self._held if name not in self._users.values()]:
            self._held.pop(name).close()
