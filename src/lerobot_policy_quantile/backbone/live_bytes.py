"""How many bytes of tensors are alive at once, on any device, torch's meta device included."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside this context, counts the storages that operations make, until nothing refers to them any more.

    Views share their storage and count once. What is handed in as `known` (weights) is not counted.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known = {_storage_id(tensor) for tensor in known}
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at what it made."""
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._see(tensor)
        return result

    def _see(self, tensor: Tensor) -> None:
        key = _storage_id(tensor)
        if key in self._known or key in self._alive:
            return
        storage = tensor.untyped_storage()
        self._alive[key] = storage.nbytes()
        self.now += self._alive[key]
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._alive.pop(key, 0)


def _storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
