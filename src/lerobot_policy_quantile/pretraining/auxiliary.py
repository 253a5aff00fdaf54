"""Auxiliary heads and losses on privileged positions, which train the VLM's features; not part of the checkpoint.

Axes: b batch, c camera, i patch, t thing or the basket, v VLM width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from lerobot_policy_quantile.backbone.model import Reading
from lerobot_policy_quantile.pretraining.targets import ABSENT, PLACES, Targets

LAST_TOKENS = 4
"""Text tokens that positions are regressed from: the end of the prompt, the same for every instruction."""


class Spotter(nn.Module):
    """Predicts which patch contains an object, if any, and where in the patch."""

    def __init__(self, width: int, things: int) -> None:
        super().__init__()
        self.here, self.nowhere = nn.Linear(width, things), nn.Linear(width, things)
        self.offset = nn.Linear(width, 2 * things)

    def forward(
        self, tokens: Float[Tensor, "b i v"], patch: Int[Tensor, "b t"], offset: Float[Tensor, "b t 2"]
    ) -> Float[Tensor, ""]:
        """Cross entropy over patches and a null class, and the distance inside the right patch; absent things do not
        count.
        """
        if bool((patch == ABSENT).all()):
            return tokens.new_zeros(())
        count = tokens.shape[1]
        logits = torch.cat([self.here(tokens), self.nowhere(tokens.mean(1, keepdim=True))], dim=1)
        classes = functional.cross_entropy(logits, patch, ignore_index=ABSENT)
        seen = (patch < count) & (patch != ABSENT)
        chosen = patch.clamp(0, count - 1)
        guesses = self.offset(tokens).unflatten(-1, (-1, 2))
        at_patch = guesses.gather(1, chosen[:, None, :, None].expand(-1, 1, -1, 2))[:, 0]
        distance = (at_patch - offset).abs().mean(-1)
        loss: Tensor = classes + 2 * (distance * seen).sum() / seen.sum().clamp_min(1)
        return loss


class AuxiliaryHeads(nn.Module):
    """All objects from the vision tower's tokens, the aims from the VLM's, distances from the last text tokens."""

    def __init__(self, width: int, cameras: int = 2, aims: int = 1) -> None:
        super().__init__()
        self.all_things = nn.ModuleList(Spotter(width, PLACES) for _ in range(cameras))
        self.named_thing = nn.ModuleList(Spotter(width, aims) for _ in range(cameras))
        self.distances = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 6))

    def losses(
        self, reading: Reading, token_valid: Bool[Tensor, "b t"], targets: Targets
    ) -> dict[str, Float[Tensor, ""]]:
        """`spot`, `named` and `distance`, each a mean."""
        spot, named, begin = reading.features.new_zeros(()), reading.features.new_zeros(()), 0
        for camera, tokens in enumerate(reading.images):
            patch, offset = targets.patch[:, camera], targets.offset[:, camera]
            spot = spot + self.all_things[camera](tokens.float(), patch, offset)
            seen = reading.features[:, begin : begin + tokens.shape[1]]
            begin += tokens.shape[1]
            named = named + self.named_thing[camera](seen, targets.aim_patch[:, camera], targets.aim_offset[:, camera])
        cameras = len(reading.images)
        away = self.positions(reading, token_valid)
        distance = (away - targets.relative).abs().mean()
        return {"spot": spot / cameras, "named": named / cameras, "distance": distance}

    def positions(self, reading: Reading, token_valid: Bool[Tensor, "b t"]) -> Float[Tensor, "b 6"]:
        """Positions of the named object and the basket relative to the hand."""
        text = reading.features[:, -token_valid.shape[1] :]
        behind = token_valid.flip(1).cumsum(1).flip(1)  # valid tokens from here to the end
        last = token_valid & (behind <= LAST_TOKENS)
        summary = (text * last[..., None]).sum(1) / last.sum(1, keepdim=True)
        positions: Tensor = self.distances(summary)
        return positions
