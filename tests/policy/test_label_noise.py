"""Which labels a training step drops: a pure function of run, forward and dataset frame, the draw of Sec. 3.3."""

import numpy as np
import torch

from lerobot_policy_quantile.core.heads import training_loss
from lerobot_policy_quantile.core.losses import keep_mask
from lerobot_policy_quantile.policy.label_noise import keep_labels, keyed_generator
from tests.support.policies import make_batch, make_policy


def test_labels_are_dropped_in_training_only():
    policy = make_policy(drop_ratio=0.5)
    batch = make_batch(policy.config)
    with torch.no_grad():
        assert float(policy.eval()(batch)[0]) == float(policy(batch)[0])
        first, second = (float(policy.train()(batch)[0]) for _ in range(2))
    assert first != second


def test_masks_depend_on_the_frame_not_on_the_split():
    """One batch of six or two of three: the same labels are dropped, 3 of 30 at r = 0.1."""
    valid = torch.ones(6, 10, 3, dtype=torch.bool)
    frames = [5, 900, 17, 3, 44, 8]
    key = {"run": 7, "forward": 3}
    whole = keep_labels(valid, 0.1, frames=frames, **key)
    halves = [keep_labels(valid[:3], 0.1, frames=frames[part], **key) for part in (slice(3), slice(3, 6))]
    assert torch.equal(whole, torch.cat(halves))
    assert (~whole).flatten(1).sum(1).tolist() == [3] * 6
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(whole, keep_labels(valid, 0.1, run=7, forward=4, frames=frames))


def test_masks_are_drawn_frame_by_frame():
    """Drawn together, and the same as ever: each frame by a generator of its own."""
    valid = torch.rand(5, 10, 3) > 0.3
    frames = [5, 900, 2**40, 0, 44]
    alone = [
        keep_mask(row[None], 0.3, generator=keyed_generator(7, 3, frame))
        for row, frame in zip(valid, frames, strict=True)
    ]
    assert torch.equal(keep_labels(valid, 0.3, run=7, forward=3, frames=frames), torch.cat(alone))


def test_keys_are_numpys_seed_sequence():
    """What makes runs of earlier versions resumable."""
    for key in [(7, 3, 900), (7, 3, 2**40)]:
        seed = int(np.random.SeedSequence(list(key)).generate_state(1, dtype=np.uint64)[0]) & (2**63 - 1)
        assert keyed_generator(*key).initial_seed() == seed


def test_generators_of_near_keys_are_unrelated():
    draws = torch.stack([torch.rand(1000, generator=keyed_generator(0, 0, frame)) for frame in range(20)])
    correlation = torch.corrcoef(draws) - torch.eye(20)
    assert correlation.abs().max() < 0.15  # five standard errors of 1000 independent draws


def test_lerobots_path_drops_what_training_loss_drops():
    """Sample by sample, `training_loss` with this ratio and the frame's generator: one batch, or pieces of it."""
    policy = make_policy(drop_ratio=0.3).train()
    batch = make_batch(policy.config)
    batch["action_is_pad"][1, 6:] = True
    run, forward = policy.noise_key.tolist()
    with torch.no_grad():
        expert = policy._expert(policy.prefix(batch))
        features = expert.direct(torch.zeros(4, 10, policy.config.max_action_dim))
        alone = [
            training_loss(
                policy.head,
                lambda actions, noise_time, row=row: features[row, None],
                batch["action"][row, None],
                ~batch["action_is_pad"][row, None, :, None].expand(1, 10, 3),
                drop_ratio=0.3,
                generator=keyed_generator(run, forward, int(frame)),
            )
            for row, frame in enumerate(batch["index"])
        ]
        found, _ = policy(batch, reduction="none")
    torch.testing.assert_close(found, torch.stack(alone))
    everything = make_policy(drop_ratio=0.0).train()(batch, reduction="none")[0]
    assert not torch.isclose(found, everything).any()
    policy.noise_key[1], policy.config.micro_batch = forward, 3
    torch.testing.assert_close(policy(batch)[0].detach(), torch.stack(alone).mean())
