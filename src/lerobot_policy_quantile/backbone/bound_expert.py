"""The action expert with the observation given: what core's heads call.

Axes: b batch, h chunk step, m model action dim, w expert width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.backbone.attention import Prefix
from lerobot_policy_quantile.backbone.fast import FastExpert
from lerobot_policy_quantile.core._devices import known_zero, on_host, send
from lerobot_policy_quantile.core.episode import Episode


@dataclass(frozen=True)
class BoundExpert:
    """Expert passes over one prefix, on the plain path or the fast one.

    Noise queries are drawn from `generator`, or row by row from `episodes`.
    """

    backbone: Any
    prefix: Prefix
    generator: torch.Generator | None = None
    episodes: Sequence[Episode] | None = None

    def __call__(self, actions: Float[Tensor, "b h m"], noise_time: Float[Tensor, " b"]) -> Float[Tensor, "b h w"]:
        """Features of the action tokens."""
        return self._ask(actions, noise_time, at_zero=known_zero(noise_time), blank=known_zero(actions))

    def direct(self, queries: Float[Tensor, "b h m"]) -> Float[Tensor, "b h w"]:
        """The same at noise time zero and for queries that are zeros: nothing has to be looked at."""
        return self._ask(queries, queries.new_zeros(len(queries)), at_zero=True, blank=True)

    def _ask(self, actions: Tensor, noise_time: Tensor, *, at_zero: bool, blank: bool) -> Tensor:
        backbone, prefix = self.backbone, self.prefix
        queries = actions if backbone.query == "zero" else self._queries(actions, blank)
        fast: FastExpert | None = backbone._fast_expert
        if fast is None and not backbone._live:
            features: Tensor = backbone.suffix(prefix, queries, noise_time)[1]
            return features
        backbone._check_suffix(prefix, queries, noise_time)
        backbone.expert_calls += 1
        blank = blank and at_zero and backbone.query == "zero"
        if fast is None:
            return FastExpert(backbone, None)(prefix, queries, noise_time, at_zero=at_zero, blank=blank)
        with torch.no_grad():
            return fast(prefix, queries, noise_time, at_zero=at_zero, blank=blank)

    def _queries(self, actions: Float[Tensor, "b h m"], blank: bool) -> Float[Tensor, "b h m"]:
        """What stands in for zero queries. Values on a device are not looked at: only flow matching carries actions."""
        backbone = self.backbone
        if not blank and on_host(actions):
            raise ValueError(
                f"query {backbone.query!r} replaces zero queries and cannot carry actions; use query 'zero'"
            )
        if backbone.query == "vlm":
            pooled = self.prefix.pooled.to(backbone.query_projection.weight.dtype)
            query: Tensor = backbone.query_projection(pooled)
            return query[:, None].expand_as(actions)
        if self.episodes is not None:
            drawn = torch.stack([episode.normal(*actions.shape[1:]) for episode in self.episodes])
        elif self.generator is not None:
            drawn = torch.randn(actions.shape, generator=self.generator, device=self.generator.device)
        else:
            raise ValueError("query 'noise' needs a generator or episodes to draw from; got neither")
        return send(drawn, actions.device, actions.dtype)
