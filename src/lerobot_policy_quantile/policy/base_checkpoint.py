"""The base checkpoints of the tiny variant, shipped with the package, and policies that start from them.

`base` knows the embedded scene and LIBERO-Object, `base_suites` all four LIBERO suites, too. Their folders hold nothing
else: saved policies like any other, made by `qhead pretrain`; each README.md says from what.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from lerobot_policy_quantile.backbone import Backbone, LoadReport
    from lerobot_policy_quantile.backbone.weight_files import StoredTensor
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig
    from lerobot_policy_quantile.core.heads import Head
    from lerobot_policy_quantile.modeling_quantile import QuantilePolicy

WEIGHTS = "model.safetensors"
BACKBONE = "backbone."
INPUT = f"{BACKBONE}action_in_proj.weight"
PROMPTS = f"{BACKBONE}prompts"
"""Taken over where there are as many of them: the base's expert was pretrained with its own."""
HEIGHT = 2
"""The hand's height among the state values."""
BASE_GROUND = 0.8
"""The embedded scene's table top, from which the heights of a base for one ground are reckoned."""
AT_WORK = 0.2
"""Height of a working hand above the ground: a base that has it in its range knows that ground."""
OUTPUT = "head.projection."
FLOW_FILE, FLOW_PROJECTION = "flow_projection.safetensors", "flow_projection."
"""The output projection of a base that was pretrained by flow matching too, beside the direct one in `WEIGHTS`."""
FRESH = "query_projection."
"""A part of the backbone that is never taken over."""


def base_checkpoint(name: str = "base") -> Path:
    """The folder of a shipped checkpoint: config.json, model.safetensors, both processors, README.md."""
    folder = Path(__file__).parent / name
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"the package must hold {WEIGHTS} in {folder}; make it with qhead pretrain")
    return folder


def base_statistics(config: "QuantileConfig", folder: Path | None = None) -> dict[str, dict[str, "Tensor"]]:
    """Feature -> q01 and q99 of the base's pretraining data, in which its VLM reads states; must fit the policy's."""
    from safetensors.torch import load_file

    (file,) = (folder or base_checkpoint(config.weights_source)).glob(
        "policy_preprocessor_step_*_normalizer_processor.safetensors"
    )
    found: dict[str, dict[str, Tensor]] = {}
    for name, values in load_file(file).items():
        feature, _, end = name.rpartition(".")
        found.setdefault(feature, {})[end] = values
    features = {**config.input_features, **config.output_features}
    for feature, ends in found.items():
        shape = tuple(features[feature].shape) if feature in features else None
        if shape != (ours := tuple(ends["q01"].shape)):
            raise ValueError(f"normalise_by must be 'dataset' for {feature} of shape {shape}: the base has {ours}")
    return found


def load_base_weights(
    backbone: "Backbone", head: "Head", folder: Path | None = None, *, output_projection: str = "inherited"
) -> "LoadReport":
    """Fill VLM, expert, time MLP, prompts, action projection and output projection from a base checkpoint. Every head
    has the output projection, as from a pi05 checkpoint; gaps begin afresh. Flow heads get the base's flow projection
    where it has one.

    With `output_projection="fresh"` the output projection keeps its initial values, and so does another number of
    prompts. Every other tensor must be there in its shape, or nothing is written.
    """
    from lerobot_policy_quantile.backbone.weight_files import stored_tensors
    from lerobot_policy_quantile.backbone.weights import LoadReport, copy_tensors, new_columns, with_leading_columns
    from lerobot_policy_quantile.core.heads import FlowHead

    source = (folder or base_checkpoint()) / WEIGHTS
    if not source.is_file():
        raise ValueError(f"base checkpoint must be a folder with {WEIGHTS}; got {source.parent}")
    stored = stored_tensors(source.parent)
    wanted = {
        f"{BACKBONE}{name}": tensor for name, tensor in backbone.state_dict().items() if not name.startswith(FRESH)
    }
    if output_projection == "inherited":
        wanted |= {f"{OUTPUT}{name}": tensor for name, tensor in head.projection.state_dict().items()}
    else:
        wanted = with_leading_columns(INPUT, wanted, stored)
    if PROMPTS in wanted and (PROMPTS not in stored or stored[PROMPTS].shape != wanted[PROMPTS].shape):
        del wanted[PROMPTS]
    faults = [name for name, tensor in wanted.items() if name not in stored or stored[name].shape != tensor.shape]
    if faults:
        raise ValueError(
            f"{source} does not fit a backbone {backbone.variant.name!r} with model_dim {backbone.model_dim}:"
            f" {len(faults)} tensors are missing or of another shape, such as {faults[0]}"
        )
    if output_projection == "inherited" and isinstance(head, FlowHead):
        stored |= _flow_projection(source.parent, {name: wanted[name] for name in wanted if name.startswith(OUTPUT)})
    copy_tensors({name: stored[name] for name in wanted}, wanted)
    ours = [f"{BACKBONE}{name}" for name in backbone.state_dict()] + [f"head.{name}" for name in head.state_dict()]
    new = [name for name in ours if name not in wanted] + new_columns(INPUT, wanted, backbone.model_dim)
    dropped = tuple(name for name in stored if name not in wanted)
    return LoadReport(str(source.parent), tuple(wanted), dropped, tuple(new))


def _flow_projection(folder: Path, wanted: dict[str, "Tensor"]) -> dict[str, "StoredTensor"]:
    """The base's flow projection under the names of a head's; empty for a base without one."""
    from lerobot_policy_quantile.backbone.weight_files import tensors_in

    file = folder / FLOW_FILE
    if not file.is_file():
        return {}
    found = {name.replace(FLOW_PROJECTION, OUTPUT): tensor for name, tensor in tensors_in(file).items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    if {name: tensor.shape for name, tensor in found.items()} != shapes:
        raise ValueError(f"{file} must hold {[*shapes.items()]} under {FLOW_PROJECTION!r}; got {[*tensors_in(file)]}")
    return found


def processors_from_base(
    config: "QuantileConfig", *, folder: Path | None = None, ground: float = BASE_GROUND
) -> tuple[Any, Any]:
    """A base's own processors, for a scene whose things stand at the height `ground` (metres).

    The VLM reads states as bins of the base's ranges. Heights of a base that was pretrained on one ground begin at the
    embedded table; on another ground the range of the hand's height is moved along, or every height would fall into the
    same bin.
    """
    from copy import deepcopy

    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.processor import NormalizerProcessorStep
    from lerobot.processor.normalize_processor import hotswap_stats

    import lerobot_policy_quantile.processor_quantile  # noqa: F401  registers our steps

    before, after = make_pre_post_processors(
        config,
        pretrained_path=str(folder or base_checkpoint()),
        preprocessor_overrides={"device_processor": {"device": config.device}},
    )
    (step,) = (step for step in before.steps if isinstance(step, NormalizerProcessorStep))
    low, high = (float(step.stats["observation.state"][end][HEIGHT]) for end in ("q01", "q99"))
    if low <= ground + AT_WORK <= high:
        return before, after
    moved = deepcopy(step.stats)
    for end in ("q01", "q99"):
        moved["observation.state"][end][HEIGHT] += ground - BASE_GROUND
    return hotswap_stats(before, moved), hotswap_stats(after, moved)


def copy_base(out: Path, *, ground: float) -> Path:
    """The base as a policy folder of its own, for scenes on another ground; 0 is LIBERO-Object's floor."""
    from shutil import copytree

    from lerobot_policy_quantile.configuration_quantile import QuantileConfig

    copytree(base_checkpoint(), out)
    config: Any = QuantileConfig.from_pretrained(out)
    for pipeline in processors_from_base(config, ground=ground):
        pipeline.save_pretrained(out)
    return out


def policy_from_base(head: str = "quantile", *, folder: Path | None = None, **settings: Any) -> "QuantilePolicy":
    """A new policy with the base's VLM, expert, prompts and output projection; `settings` replace config fields.

    `output_projection="fresh"` is one of them: the projection is then drawn anew, the same for every head.

    Use the checkpoint's own processors with it: the VLM reads states in their normalisation.
    """
    from dataclasses import replace

    from lerobot.configs import PreTrainedConfig

    from lerobot_policy_quantile.modeling_quantile import QuantilePolicy

    saved: Any = PreTrainedConfig.from_pretrained(folder or base_checkpoint())
    config = replace(saved, head=head, **settings)
    policy = QuantilePolicy(config, load_backbone_weights=False)
    load_base_weights(policy.backbone, policy.head, folder, output_projection=config.output_projection)
    return policy
