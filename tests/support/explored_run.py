"""Runs out of thin air for the explorer: journal, arrays, pictures; actions are what the decoder makes of the law."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from lerobot_policy_quantile.core.decoders import parse_decoder
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace

SHARED = "shared(l=0, rho=0.9)"
QUERIES, CHUNK, EXECUTED, DIM, K = 6, 8, 5, 7, 21
STEPS = QUERIES * EXECUTED


def key(index: int = 0, *, policy: str = "ours", decoder: str = "median", scene: str = "embedded") -> EpisodeKey:
    return EpisodeKey(scene, 0, index, 0, policy, decoder)


def made_quantiles(seed: int = 0, *, dim: int = DIM, queries: int = QUERIES, chunk: int = CHUNK) -> np.ndarray:
    """Some coordinates narrow, some wide, gaps of very different sizes."""
    draws = np.random.default_rng(seed)
    gaps = draws.gamma(0.6, 0.05, (queries, chunk, dim, K)) * draws.choice([0.02, 1.0], dim)[:, None]
    start = 0.3 * draws.normal(size=(queries, 1, dim, 1)) - gaps.sum(-1, keepdims=True) / 2
    return (start + gaps.cumsum(-1)).astype(np.float32)


def law_of(quantiles: np.ndarray) -> QuantileFunction:
    return QuantileFunction(quantile_levels(quantiles.shape[-1], dtype=torch.float64), torch.tensor(quantiles).double())


def decoded(quantiles: np.ndarray, decoder: str, seed: int, executed: np.ndarray | None = None):
    """What Python's decoder answers to every query, one after the other: [(actions, ranks)].

    `executed` are the episode's actions; without them each chunk's own are taken.
    """
    episode, found = Episode(seed), []
    for query, chunk in enumerate(quantiles):
        if executed is not None and query:
            episode.executed = torch.tensor(executed[: query * EXECUTED]).double()
        actions, ranks = parse_decoder(decoder).decode(law_of(chunk[None]), [episode])
        episode.executed = actions[0, :EXECUTED]
        found.append((actions[0].numpy(), ranks[0].numpy()))
    return found


def made_trace(episode: EpisodeKey, *, plain: bool = False) -> Trace:
    quantiles = made_quantiles(episode.index)
    chunks = [actions for actions, _ in decoded(quantiles, episode.decoder, episode.noise_seed)]
    actions = np.concatenate([chunk[:EXECUTED] for chunk in chunks]).astype(np.float32)
    states = np.concatenate([np.zeros((1, 8)), np.pad(actions, ((0, 0), (0, 1)))]).cumsum(0) * 0.02
    frames = [np.full((16, 32, 3), (40 * query, 80, 160), np.uint8) for query in range(QUERIES)]
    return Trace(
        actions=list(actions),
        states=list(states),
        contacts=[int(step % 11 == 10) for step in range(STEPS)],
        query_steps=list(range(0, STEPS, EXECUTED)),
        quantiles=[] if plain else list(quantiles),
        frames=frames,
        frame_rate=Fraction(4),
    )


def write_run(folder: Path, keys: list[EpisodeKey], *, plain: tuple[str, ...] = ("plain",), video: bool = True) -> Path:
    """A finished run; every third index fails. Policies in `plain` predict no quantiles."""
    files = SideFiles(folder / "side", video=video)
    with Journal(folder / "journal.sqlite") as journal:
        for episode in keys:
            surprises = np.append(np.nan, np.linspace(0, 1, QUERIES - 1))
            trace = made_trace(episode, plain=episode.policy in plain)
            if episode.index == 0:
                trace.notes, trace.alarms = {"surprises": surprises}, [query > 3 for query in range(QUERIES)]
            status = "failure" if episode.index % 3 == 2 else "success"
            outcome = Outcome(
                episode, status, steps=STEPS, contacts=sum(trace.contacts), side_files=files.write(episode, trace)
            )
            journal.record(outcome)
    return folder


def usual_keys(count: int = 6) -> list[EpisodeKey]:
    pairs = [("ours", "median"), ("ours", SHARED), ("plain", "median")]
    return [key(index, policy=policy, decoder=decoder) for policy, decoder in pairs for index in range(count)]
