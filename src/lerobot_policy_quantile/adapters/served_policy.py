"""A saved policy as the server's model: the closed loop's adapter, with the names openpi's clients use for cameras."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.adapters.lerobot_folder import EpisodicPolicy, PlainPolicy, load_lerobot_policy
from lerobot_policy_quantile.contract import CAMERA_KEYS, OWN_DECODER, WIRE_NAMES, Observation, RawChunk, Spec
from lerobot_policy_quantile.policy.bounds_file import read_bounds


class ServedPolicy:
    """Reads requests' names, answers with the policy of a folder."""

    def __init__(self, policy: EpisodicPolicy | PlainPolicy, wire_names: Mapping[str, str]) -> None:
        self._policy = policy
        config = policy.config
        state_dim = int(config.input_features["observation.state"].shape[0])
        self.spec = Spec(
            cameras=tuple(wire_names.values()),
            state_dim=state_dim,
            action_dim=int(config.output_features["action"].shape[0]),
            chunk_size=int(config.chunk_size),
            n_action_steps=policy.n_action_steps,
            levels=policy.levels,
            decoder=getattr(config, "decoder", OWN_DECODER),
            context=policy.context,
            grippers=policy.grippers,
            bounds=None if policy.bounds is None else policy.bounds.mass,
            prompt_limit=policy.prompt_limit(state_dim),
            left_over_bounds=policy.left_over_bounds(),
        )

    def begin(self, seed: int, decoder: str | None) -> Any:
        """The policy's memory of a new episode."""
        return self._policy.begin(seed, None, OWN_DECODER if decoder is None else decoder)

    def predict(self, observations: Sequence[Observation], memories: Sequence[Any]) -> list[RawChunk]:
        """One batch."""
        return self._policy.predict(observations, memories)


def load_served_policy(
    folder: Path, *, device: str = "cpu", names: Mapping[str, str] | None = None, bounds: float | None = None
) -> ServedPolicy:
    """The policy in `folder`; `names` changes what features are called on the wire.

    Chunks come with the conformal bounds of mass `bounds`; if that is None, with the widest in the folder, if any.
    """
    from lerobot.configs import PreTrainedConfig

    import lerobot_policy_quantile

    _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
    if not (folder / "config.json").is_file():
        raise ValueError(f"policy must be a folder that LeRobot saved (with config.json); got {folder}")
    features = list(PreTrainedConfig.from_pretrained(folder).image_features)
    wire_names = {feature: _wire_name(feature) for feature in features} | _known(names or {}, features)
    cameras = {wire: feature for feature, wire in wire_names.items()}
    if len(cameras) < len(wire_names):
        raise ValueError(f"cameras must have different names; got {wire_names}")
    if bounds is None and (fitted := read_bounds(folder)) is not None:
        bounds = max(fitted.masses)
    return ServedPolicy(load_lerobot_policy(folder, device=device, cameras=cameras, bounds=bounds), wire_names)


def _wire_name(feature: str) -> str:
    """LIBERO's two features have openpi's names; any other `observation.images.x` is `observation/x` on the wire."""
    known = {CAMERA_KEYS[camera]: name for camera, name in WIRE_NAMES.items()}
    return known.get(feature, f"observation/{feature.removeprefix('observation.images.')}")


def _known(names: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
    for feature in names:
        if feature not in features:
            raise ValueError(f"camera must name one of the policy's features {', '.join(features)}; got {feature!r}")
    return dict(names)
