import pytest
import torch

from lerobot_policy_quantile.core import losses
from lerobot_policy_quantile.core.theory import center, checks, scores

TOPICS = [
    "shared objective, B = alpha = 0",
    "shared objective, Gaussian B",
    "threshold integral",
    "2 x integrated pinball: normal",
    "2 x integrated pinball: skewed",
    "2 x integrated pinball: bimodal",
    "2 x integrated pinball: normal with an atom",
    "2 x integrated pinball: random step law",
    "score covariance",
    "B_Q = 1/4 - C_t eps",
    "slope: normal",
    "wide 21-level grid: normal",
    "wide 21-level grid: logistic",
    "wide 21-level grid: uniform",
    "wide 21-level grid: Laplace",
    "wide 21-level grid: Cauchy",
    "masked loss",
    "output gradient",
    "strict gaps",
]


@pytest.fixture(scope="module")
def results():
    return checks.run_checks(seed=1)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_is_checked(results, topic):
    assert any(topic in check.claim for check in results)


def test_nothing_fails_and_laws_beyond_the_theorem_are_reported_as_such(results):
    assert [check for check in results if check.status == "fail"] == []
    outside = [check for check in results if check.status == "outside"]
    assert sum("wide" in check.claim for check in outside) == 5
    noisier = {check.claim.split(": ")[1] for check in outside if "NOISIER" in check.measured}
    assert noisier == {"Laplace", "Cauchy"}


def failing(family, seed: int = 1) -> list[str]:
    family_checks = list(family(torch.Generator().manual_seed(seed)))
    return [check.claim for check in family_checks if check.status == "fail"]


# Each check must be able to fail: a fault is planted where the claim would break.


def test_a_wrong_flow_target_is_noticed(monkeypatch):
    monkeypatch.setattr("lerobot_policy_quantile.core.heads.flow_path", lambda a, n, t: (a, n + a))
    assert any("flow matching" in claim for claim in failing(checks.shared_objective_cases))


def test_a_wrong_pinball_is_noticed(monkeypatch):
    monkeypatch.setattr(scores, "pinball", lambda e, tau: e.abs() / 2)
    assert len([c for c in failing(checks.threshold_and_crps) if "CRPS = 2 x" in c]) >= 4


def test_a_wrong_covariance_is_noticed(monkeypatch):
    monkeypatch.setattr(center, "score_covariance", lambda levels: torch.diag(levels * (1 - levels)))
    claims = failing(checks.median_noise)
    assert any("score covariance" in claim for claim in claims)
    assert any("identity" in claim for claim in claims)


def test_a_head_whose_gradient_is_not_the_papers_is_noticed(monkeypatch):
    def median_alone(quantiles, target, levels):
        middle = len(levels) // 2
        return losses.pinball(target - quantiles[..., middle], 0.5)

    monkeypatch.setattr(checks, "quantile_loss", median_alone)
    claims = failing(checks.median_noise)
    assert any("head's own gradient" in claim for claim in claims)
    assert any("wide" in claim for claim in claims)


def test_a_biased_mask_is_noticed(monkeypatch):
    monkeypatch.setattr(checks, "keep_mask", lambda valid, r, generator: valid & (torch.arange(4) > 1))
    assert any("equally often" in claim for claim in failing(checks.training_properties))


def test_a_wrong_normalisation_is_noticed(monkeypatch):
    monkeypatch.setattr(checks, "masked_mean", lambda loss, keep: (loss * keep).sum() / loss.numel())
    assert any("masked loss" in claim for claim in failing(checks.training_properties))


def test_an_unbounded_gradient_is_noticed(monkeypatch):
    monkeypatch.setattr(checks, "quantile_loss", lambda q, a, tau: (a[:, None] - q).square().mean(-1))
    assert any("output gradient" in claim for claim in failing(checks.training_properties))


def test_an_excess_risk_above_its_bound_is_noticed(monkeypatch):
    monkeypatch.setattr(scores, "finite_risk", lambda q, levels, weights, law: float(q.diff().min()) * 100)
    assert any("strict gaps" in claim for claim in failing(checks.training_properties))
