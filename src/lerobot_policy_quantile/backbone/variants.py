"""Sizes of the backbone: the real pi0.5, and smaller models of the same structure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """Sizes of SigLIP, of the VLM's Gemma and of the action expert.

    Expert and VLM attend over each other's keys, so depth, head size and head counts are shared.
    """

    name: str
    # SigLIP
    image_size: int
    patch_size: int
    vision_width: int
    vision_depth: int
    vision_mlp: int
    vision_heads: int
    # Gemma and expert, shared
    depth: int
    heads: int
    kv_heads: int
    head_dim: int
    # Gemma
    vlm_width: int
    vlm_mlp: int
    vocab_size: int
    max_token_length: int
    """Text tokens a prompt may have, unless the policy's configuration says otherwise."""
    # expert
    expert_width: int
    expert_mlp: int

    def __post_init__(self) -> None:
        self._require_multiple("image_size", "patch_size")
        self._require_multiple("vision_width", "vision_heads")
        self._require_multiple("heads", "kv_heads")
        for field in ("head_dim", "expert_width"):  # rotary halves, sine and cosine of the noise time
            if getattr(self, field) % 2:
                raise ValueError(f"{field} must be even; got {getattr(self, field)}")

    @property
    def image_tokens(self) -> int:
        """Prefix tokens that one camera takes."""
        return int((self.image_size // self.patch_size) ** 2)

    def _require_multiple(self, field: str, divisor: str) -> None:
        value, unit = getattr(self, field), getattr(self, divisor)
        if unit < 1 or value < 1 or value % unit:
            raise ValueError(f"{field} must be a positive multiple of {divisor} = {unit}; got {value}")


PI05 = Variant(
    name="pi05",
    image_size=224,
    patch_size=14,
    vision_width=1152,
    vision_depth=27,
    vision_mlp=4304,
    vision_heads=16,
    depth=18,
    heads=8,
    kv_heads=1,
    head_dim=256,
    vlm_width=2048,
    vlm_mlp=16384,
    vocab_size=257152,
    max_token_length=200,
    expert_width=1024,
    expert_mlp=4096,
)

SMALL = Variant(
    name="small",
    image_size=112,
    patch_size=14,
    vision_width=384,
    vision_depth=8,
    vision_mlp=1536,
    vision_heads=6,
    depth=8,
    heads=8,
    kv_heads=1,
    head_dim=64,
    vlm_width=512,
    vlm_mlp=2048,
    vocab_size=1024,
    max_token_length=64,
    expert_width=256,
    expert_mlp=1024,
)

TINY = Variant(
    name="tiny",
    image_size=96,
    patch_size=16,
    vision_width=128,
    vision_depth=2,
    vision_mlp=256,
    vision_heads=4,
    depth=3,
    heads=8,
    kv_heads=1,
    head_dim=16,
    vlm_width=128,
    vlm_mlp=256,
    vocab_size=1024,
    max_token_length=64,
    expert_width=128,
    expert_mlp=640,
)

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in (PI05, SMALL, TINY)}
