"""What the backbone reads of a batch of observations.

Axes: b batch, y and x image rows and columns, t text token.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from lerobot_policy_quantile.backbone.variants import Variant
from lerobot_policy_quantile.core._checks import require_shape
from lerobot_policy_quantile.core._devices import on_host


class BackboneInputs(NamedTuple):
    """Images and text, and which of them are there.

    The two `valid` fields may lie on the host whatever the model's device: the fast path then reads nothing back.
    """

    images: list[Float[Tensor, "b 3 y x"]]
    """One entry per camera, in [-1, 1]."""
    image_valid: list[Bool[Tensor, " b"]]
    tokens: Int[Tensor, "b t"]
    token_valid: Bool[Tensor, "b t"]

    def check(self, variant: Variant) -> None:
        """Refuse shapes and tokens that a backbone of this size cannot read."""
        batch, size = len(self.tokens), variant.image_size
        if len(self.images) != len(self.image_valid):
            raise ValueError(
                f"image_valid must have one entry per image; got {len(self.image_valid)} for {len(self.images)}"
            )
        for i, (image, seen) in enumerate(zip(self.images, self.image_valid, strict=True)):
            require_shape(f"images[{i}]", image, (batch, 3, size, size))
            require_shape(f"image_valid[{i}]", seen, (batch,))
        require_shape("token_valid", self.token_valid, tuple(self.tokens.shape))
        if not on_host(self.tokens) or not self.tokens.numel():  # on a device the embedding refuses what is outside
            return
        lowest, highest = int(self.tokens.min()), int(self.tokens.max())
        if not 0 <= lowest <= highest < variant.vocab_size:
            raise ValueError(
                f"tokens must lie in [0, {variant.vocab_size}), the vocabulary of backbone"
                f" {variant.name!r}; got {lowest} to {highest}"
            )
