"""The policy: backbone, head and decoder behind LeRobot's interface.

Axes: b batch, h chunk step, d action dim, k level.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from huggingface_hub import ModelCard
from jaxtyping import Float, Int
from lerobot.configs import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.processor import PolicyAction, PolicyProcessorPipeline
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor

from lerobot_policy_quantile.backbone import Backbone, BackboneInputs, Prefix
from lerobot_policy_quantile.backbone.weights import load_own_weights
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.core.decoders import Decoder, Handover, parse_decoder
from lerobot_policy_quantile.core.episode import Episode, unchanged_on_error
from lerobot_policy_quantile.core.heads import Expert, QuantileHead, training_loss
from lerobot_policy_quantile.core.losses import Reduction
from lerobot_policy_quantile.policy.assembly import build_backbone, build_head
from lerobot_policy_quantile.policy.bounds_file import require_bounds
from lerobot_policy_quantile.policy.checkpoint_config import (
    portable,
    require_same_meaning,
    saved_config,
    stored_copula,
)
from lerobot_policy_quantile.policy.decoding import Decision, DecodedChunk, Distribution, decode_rows, in_action_units
from lerobot_policy_quantile.policy.grippers import settle_grippers
from lerobot_policy_quantile.policy.initial_weights import find_initial_weights
from lerobot_policy_quantile.policy.label_noise import keep_labels, keyed_generator
from lerobot_policy_quantile.policy.micro_batches import in_micro_batches
from lerobot_policy_quantile.policy.model_card import lerobots_card, make_model_card
from lerobot_policy_quantile.policy.normalisation import exact_quantiles_of, put_statistics
from lerobot_policy_quantile.policy.parameter_groups import parameter_groups
from lerobot_policy_quantile.policy.prefix_reuse import PrefixReuse
from lerobot_policy_quantile.policy.real_time import RTC_HEADS, RealTimeRequest, predict_towards
from lerobot_policy_quantile.policy.tokenizer import load_tokenizer
from lerobot_policy_quantile.policy.training_log import TrainingLog
from lerobot_policy_quantile.policy.training_step import (
    Labels,
    PreciseExpert,
    RecordingExpert,
    measured,
    read_labels,
    training_log,
)
from lerobot_policy_quantile.processor_quantile import require_cameras


class QuantilePolicy(PreTrainedPolicy):  # type: ignore[misc]
    """pi0.5 with learnable prompts and a quantile head; or L1, L2, flow matching on the same backbone."""

    config_class = QuantileConfig
    name = "quantile"
    _no_split_modules: ClassVar[list[str]] = list(Backbone._no_split_modules)
    _fsdp_wrap_modules: ClassVar[list[str]] = list(Backbone._no_split_modules)  # the same, for LeRobot after 0.6.1

    config: QuantileConfig
    noise_key: Int[Tensor, "2"]

    def __init__(
        self,
        config: QuantileConfig,
        *,
        dataset_meta: Any = None,
        load_backbone_weights: bool = True,
        **_: Any,
    ) -> None:
        super().__init__(config)
        config.validate_features()
        weights = find_initial_weights(config) if load_backbone_weights else None
        if load_backbone_weights and dataset_meta is not None:
            # What a new policy's processors will need is looked for before the policy is built.
            load_tokenizer(config.tokenizer_source)
            exact_quantiles_of(dataset_meta)
        settle_grippers(config, dataset_meta, must_tell=load_backbone_weights)
        self.backbone = build_backbone(config)
        self.head = build_head(config, self.backbone.expert_width)
        if weights is not None:
            weights.fill(self.backbone, self.head)
        for parameter in self.parameters():
            if parameter.requires_grad:  # half-precision weights would swallow small updates
                parameter.data = parameter.data.float()
        # (run, forwards): the key of all training randomness. Drawn once, kept in the checkpoint.
        self.register_buffer("noise_key", torch.stack([torch.randint(2**31, ()), torch.tensor(0)]))
        self._prefix_reuse = PrefixReuse.of(config.prefix_cache, dataset_meta)
        self._decoder = parse_decoder(config.decoder).with_grippers(config.gripper_dims)
        self._correlation: Tensor | None = None
        self._folder: Path | None = None
        self._next_seed = config.episode_seed
        self._last_log = TrainingLog({})
        self.reset()

    # --- training -----------------------------------------------------------------------------

    def forward(
        self, batch: dict[str, Tensor], reduction: Reduction = "mean"
    ) -> tuple[Float[Tensor, "..."], dict[str, float]]:
        """Loss and values to log. In training mode labels are dropped; in evaluation mode all count.

        On a GPU the log is read from the device when it is used; a prediction of NaN is refused then, or by the next
        forward, so that the host need not wait for this one.
        """
        self._last_log.read()
        reuse = self._prefix_reuse if self.training else None
        digests = None if reuse is None else reuse.digests(batch, self.config.image_features)
        labels = read_labels(batch, self.noise_key, (self.config.chunk_size, self.config.action_dim), digests)
        loss, numbers = self._loss(batch, labels, reduction)
        log = training_log(self.head, numbers)
        if self.training:
            self.noise_key[1] += 1
            self._last_log = log
        return loss, log

    @in_micro_batches
    def _loss(
        self, batch: dict[str, Tensor], labels: Labels, reduction: Reduction
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, " n"]]:
        """Loss of a batch, or of a piece of it, and the numbers to log, still on the device."""
        target, keep, key = labels.target, labels.valid, (0, 0)
        if self.training:
            key = run, count = labels.run, labels.forward
            keep = keep_labels(
                labels.valid_on_host, self.config.drop_ratio, run=run, forward=count, frames=labels.frames
            )
            keep = send(keep, target.device)
        generator = keyed_generator(*key, *labels.frames)
        if labels.digests and self._prefix_reuse is not None:
            prefix = self._prefix_reuse.prefix(labels.frames, labels.digests, batch, self)
        else:
            prefix = self.prefix(batch | {OBS_LANGUAGE_ATTENTION_MASK: labels.text_on_host})
        expert = RecordingExpert(self._expert(prefix, generator=generator))
        with torch.autocast(target.device.type, enabled=False):  # `keep_labels` has dropped what is to be dropped
            loss = training_loss(
                self.head, expert, target, keep, drop_ratio=0.0, generator=generator, reduction=reduction
            )
        if self.training:
            loss = self.config.loss_scale * loss
        return loss, measured(self.head, loss, expert.features, labels)

    def get_optim_params(self) -> list[dict[str, Any]]:
        """Prompts, the head if it has a rate of its own, and everything else that is trained (App. B)."""
        return parameter_groups(self, self.backbone, self.head, self.config)

    # --- acting -------------------------------------------------------------------------------

    def reset(self, seeds: Sequence[int] | None = None) -> None:
        """Begin new episodes, one per row of the batches to come.

        Without seeds, episodes are numbered on from `config.episode_seed`: the n-th episode after
        loading gets the same noise whatever the batch size.
        """
        self._action_queue: deque[Float[Tensor, "b d"]] = deque()
        self._episodes: list[Episode] | None = None if seeds is None else [Episode(seed) for seed in seeds]

    def optimize(self, *, packed: bool = False, int8: bool = False, compile: bool = False) -> Self:  # noqa: A002
        """Evaluation mode on the fast path: the same answers to about 1e-6, sooner. `train()` undoes it.

        Checkpoints saved afterwards are the same. `packed` (CPU) trades memory for speed: a second copy of the weights
        in the order that the products read them. `int8` (CPU) is approximate: `make bench` reports its error.
        `compile` is experimental: torch.compile, the expert as a CUDA graph on a GPU; the first answers take minutes.
        """
        self.eval()
        self.backbone.optimize(packed=packed, int8=int8, compile=compile)
        return self

    def supports_rtc(self) -> bool:
        """Whether a chunk can take over from the rest of the last one: a point prediction has no law to place it in."""
        return self.config.head in RTC_HEADS

    @torch.no_grad()
    def predict_action_chunk(
        self,
        batch: dict[str, Tensor],
        *,
        inference_delay: int | None = None,
        prev_chunk_left_over: Float[Tensor, "..."] | None = None,
        execution_horizon: int | None = None,
        **_: Any,
    ) -> Float[Tensor, "b h d"]:
        """The next chunk, decoded, in normalised units, on the policy's device.

        With LeRobot's RTC arguments it takes over from the rest of the last chunk: by ranks for the quantile head, by
        LeRobot's own guidance for flow matching. `rtc_config` holds the schedule.
        """
        episodes = self._episodes_of(batch)
        asked = RealTimeRequest(inference_delay, prev_chunk_left_over, execution_horizon)
        with unchanged_on_error(episodes):
            decision = self.decide(self.prefix(batch), episodes, handovers=asked.handovers(self.config, len(episodes)))
        return send(decision.actions, self.noise_key.device)

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **_: Any) -> Float[Tensor, "b d"]:
        """The next action; plans again when the first `n_action_steps` of a chunk are used up."""
        self.eval()
        if not self._action_queue:
            chunk = self.predict_action_chunk(batch)[:, : self.config.n_action_steps]
            self._action_queue.extend(chunk.unbind(1))
        return self._action_queue.popleft()

    def drop_queued_actions(self) -> None:
        """Forget the rest of the chunk, so that the next action is planned anew; the episodes go on."""
        self._action_queue.clear()

    @staticmethod
    def begin_episode(seed: int) -> Episode:
        """An episode of the caller's own, to be handed to `predict_distribution` with every batch it is in."""
        return Episode(seed)

    @torch.no_grad()
    def predict_distribution(
        self,
        batch: dict[str, Tensor],
        postprocessor: PolicyProcessorPipeline[PolicyAction, PolicyAction],
        *,
        episodes: Sequence[Episode] | None = None,
    ) -> Distribution:
        """The next chunk together with its quantiles, both in action units, on the CPU.

        `postprocessor` is the policy's own. `episodes`, one per row, come from `begin_episode` and may come and go
        from batch to batch; left out, they are those begun by `reset`.
        """
        return Distribution(*self.predict_decoded(batch, postprocessor, episodes=episodes)[:3])

    @torch.no_grad()
    def predict_decoded(
        self,
        batch: dict[str, Tensor],
        postprocessor: PolicyProcessorPipeline[PolicyAction, PolicyAction],
        *,
        episodes: Sequence[Episode] | None = None,
        decoders: Sequence[Decoder | None] | None = None,
        handovers: Sequence[Handover | None] | None = None,
    ) -> DecodedChunk:
        """`predict_distribution` with the ranks, and with a decoder of its own for every row that has one.

        `handovers` joins rows to the rest of the chunk they are executing. If it raises, the episodes have drawn
        nothing.
        """
        episodes = self._episodes_of(batch) if episodes is None else episodes
        with unchanged_on_error(episodes):
            return in_action_units(self.decide(self.prefix(batch), episodes, decoders, handovers), postprocessor)

    def choose_decoder(self, text: str) -> Decoder:
        """The decoder of that text, for episodes that want another than the policy's own."""
        if not isinstance(self.head, QuantileHead):
            raise ValueError(f"decoder needs the quantile head; this policy's is {self.config.head}; got {text!r}")
        decoder = parse_decoder(text).with_grippers(self.config.gripper_dims)
        if self._correlation is not None:
            decoder = decoder.with_copula(self._correlation)
        if decoder.inside is not None and self._folder is not None:
            decoder = decoder.with_margin(require_bounds(self._folder).margin(decoder.inside))
        decoder.require_fits(self.config.chunk_size, self.config.action_dim)
        return decoder

    @torch.no_grad()
    def decide(
        self,
        prefix: Prefix,
        episodes: Sequence[Episode],
        decoders: Sequence[Decoder | None] | None = None,
        handovers: Sequence[Handover | None] | None = None,
    ) -> Decision:
        """Expert passes, head and decoder on what was seen: the next chunk, its law and its ranks, normalised.

        The head's answer comes to the CPU in one copy; decoding is small and happens there.
        """
        handovers = [None] * len(episodes) if handovers is None else handovers
        expert = self._expert(prefix, episodes=episodes)
        with torch.autocast(self.noise_key.device.type, enabled=False):
            prediction = predict_towards(self.head, expert, episodes, handovers, self.config)
        if prediction.quantiles is None:
            return Decision(prediction.actions, prediction)
        for episode, handover in zip(episodes, handovers, strict=True):
            if handover is not None:  # the old plan's action for the step that the new chunk begins with
                episode.executed = handover.left_over[:1]
        chosen = [decoder or self._decoder for decoder in decoders or [None] * len(episodes)]
        joined = decode_rows(prediction.quantiles, episodes, chosen, handovers)
        for episode, chunk in zip(episodes, joined.actions, strict=True):
            episode.executed = chunk[: self.config.n_action_steps]
        motion = [d for d in range(self.config.action_dim) if d not in self.config.gripper_dims]
        return Decision(joined.actions, prediction, joined.ranks, joined.surprises(handovers, motion))

    def use_copula(self, correlation: Float[Tensor, "c c"]) -> None:
        """Give decoders the ranks' correlation in the training data; only the decoder `copula` reads it."""
        self._correlation = correlation.cpu()  # where episodes draw
        self._decoder = self._decoder.with_copula(self._correlation)

    def _episodes_of(self, batch: dict[str, Tensor]) -> list[Episode]:
        rows = len(batch[OBS_LANGUAGE_TOKENS])
        if self._episodes is None:
            self._episodes = [Episode(self._next_seed + row) for row in range(rows)]
            self._next_seed += rows
        if len(self._episodes) != rows:
            raise ValueError(
                f"the batch must keep one row per running episode, {len(self._episodes)}; got {rows};"
                " call reset() before another batch of episodes"
            )
        return self._episodes

    # --- shared -------------------------------------------------------------------------------

    def prefix(self, batch: dict[str, Tensor]) -> Prefix:
        """What the VLM says about the observations of a processed batch; all that the expert reads of them."""
        with self._autocast():
            return self.backbone.prefix(self.inputs(batch))

    def inputs(self, batch: dict[str, Tensor]) -> BackboneInputs:
        """What the backbone reads of a processed batch."""
        cameras = list(self.config.image_features)
        require_cameras(cameras, batch)
        images = [batch[camera] for camera in cameras]
        seen = [torch.ones(len(image), dtype=torch.bool) for image in images]  # on the host, where it is known
        return BackboneInputs(images, seen, batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK].bool())

    def _expert(self, prefix: Prefix, **source: Any) -> Expert:
        """The backbone's expert in its own precision, its features in the head's (float32)."""
        return PreciseExpert(self.backbone.expert(prefix, **source), self._autocast)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.noise_key.device.type, torch.bfloat16, enabled=self.config.dtype == "bfloat16", cache_enabled=False
        )

    # --- saving and loading -------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path, *, config: PreTrainedConfig | None = None, **kwargs: Any
    ) -> Self:
        """Load a saved policy. Every weight must fit; settings that give weights their meaning must agree.

        `dataset_meta` is what LeRobot's `make_policy` hands over when a saved policy is trained on. The trainer then
        fills the saved processors from `dataset_meta.stats`, without a call into this package: here, and nowhere else,
        the metadata in memory gets other statistics, those with exact q01 and q99 or the base's (`normalise_by`).
        """
        saved = saved_config(pretrained_name_or_path, kwargs)
        require_same_meaning(saved, saved if config is None else config)
        if (dataset_meta := kwargs.get("dataset_meta")) is not None:
            put_statistics(dataset_meta, config or saved)
        kwargs |= {"strict": True, "load_backbone_weights": False}
        policy: Self = super().from_pretrained(pretrained_name_or_path, config=config or saved, **kwargs)
        if (correlation := stored_copula(pretrained_name_or_path)) is not None:
            policy.use_copula(correlation)
        if (folder := Path(pretrained_name_or_path)).is_dir():
            policy._folder = folder
            if policy._decoder.inside is not None:
                policy._decoder = policy.choose_decoder(policy.config.decoder)
        return policy

    @classmethod
    def _load_as_safetensor(cls, model: Self, model_file: str, *_: Any) -> Self:
        """LeRobot's hook: piece by piece, so that the weights are in memory once."""
        load_own_weights(model, Path(model_file).parent)
        return model

    def _save_pretrained(self, save_directory: Path, **gathered: Any) -> None:
        """Weights and configuration; paths of this machine are left out. LeRobot 0.6.1 hands in what FSDP gathered."""
        config, self.config = self.config, portable(self.config)
        try:
            super()._save_pretrained(save_directory, **gathered)
        finally:
            self.config = config

    def generate_model_card(
        self,
        dataset_repo_id: str,
        model_type: str,
        license: str | None,  # noqa: A002
        tags: list[str] | None,
        cfg: Any = None,
        dataset_meta: Any = None,
    ) -> ModelCard:
        """LeRobot's model card with what is ours: base model, head, levels, decoder."""
        card = lerobots_card(self, dataset_repo_id, model_type, license, tags, cfg, dataset_meta)
        return make_model_card(card, self.config, self._last_log.read())
