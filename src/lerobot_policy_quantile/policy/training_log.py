"""What a training step has to say, read from the device when somebody asks for it.

LeRobot reads a step's log after the update, beside the loss itself. Read inside the forward, each number would make the
host wait before it has even asked for the gradients.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._devices import on_host


class TrainingLog(dict[str, float]):
    """Named numbers whose first use copies them from the device, all at once. On the CPU they are read at once.

    pending  one number per name, and how many values were NaN: more than none is refused when the log is read
    """

    def __init__(self, numbers: Mapping[str, float], *, pending: Float[Tensor, " n"] | None = None) -> None:
        super().__init__(numbers)
        self._names, self._pending = list(numbers), pending
        if pending is not None and on_host(pending):
            self.read()

    def read(self) -> dict[str, float]:
        """The numbers, in an ordinary dictionary."""
        if self._pending is not None:
            *numbers, broken = self._pending.tolist()
            self._pending = None
            super().update(zip(self._names, numbers, strict=True))
            if broken:
                raise ValueError(
                    f"prediction must not contain NaN; got {int(broken)} NaN in loss and features;"
                    " weights or inputs are broken: go back to the last checkpoint"
                )
        return dict(super().items())

    def __getitem__(self, name: str) -> float:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:  # its own, so that dict.update asks for values one by one
        return iter(list(super().keys()))

    def get(self, name: str, default: Any = None) -> Any:
        """As of any dictionary."""
        return self.read().get(name, default)

    def items(self) -> ItemsView[str, float]:  # type: ignore[override]
        """As of any dictionary."""
        return self.read().items()

    def values(self) -> ValuesView[float]:  # type: ignore[override]
        """As of any dictionary."""
        return self.read().values()

    def copy(self) -> dict[str, float]:
        """An ordinary dictionary."""
        return self.read()

    def __eq__(self, other: object) -> bool:
        return self.read() == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self.read())

    def __reduce__(self) -> tuple[Any, ...]:
        return TrainingLog, (self.read(),)
