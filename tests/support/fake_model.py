"""A model for the server's tests: every episode draws from its own generator, so cross-talk shows in the numbers.

A batch waits until `gate` is open, `begun` tells that one is being computed. The state's first entry can order a fault:
666 raises, 777 gives NaN.
"""

import threading

import numpy as np

from lerobot_policy_quantile.contract import LeftOver, Observation, RawChunk, Spec
from tests.support.waiting import PATIENCE

CAMERAS = ("observation/image", "observation/wrist_image")
LEVELS = (0.05, 0.275, 0.5, 0.725, 0.95)
DECODERS = ("median", "shared")
STEPS, ACTION_DIM, STATE_DIM = 10, 7, 8


class FakeModel:
    def __init__(self, *, shut: bool = False) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()
        if not shut:
            self.gate.set()
        self.batches: list[int] = []
        bounds = (-20.0,) * ACTION_DIM, (20.0,) * ACTION_DIM
        self.spec = Spec(
            *(CAMERAS, STATE_DIM, ACTION_DIM, STEPS, STEPS, LEVELS, "median", {"policy": "fake"}),
            left_over_bounds=bounds,
        )
        self.handed: list[LeftOver | None] = []

    def begin(self, seed, decoder):
        if decoder is not None and decoder not in DECODERS:
            raise ValueError(f"decoder must be one of {', '.join(DECODERS)}; got {decoder!r}")
        return {"noise": np.random.default_rng(seed), "decoder": decoder or "median"}

    def predict(self, observations, memories):
        self.batches.append(len(observations))
        self.handed += [observation.left_over for observation in observations]
        self.begun.set()
        assert self.gate.wait(PATIENCE)
        if any(observation.state[0] == 666 for observation in observations):
            raise RuntimeError("a secret of the server")
        return [self._row(*pair) for pair in zip(observations, memories, strict=True)]

    @staticmethod
    def _row(observation, memory):
        rank = memory["noise"].uniform(size=(STEPS, ACTION_DIM))
        centre = np.full((STEPS, ACTION_DIM), observation.state[1] + observation.images[CAMERAS[0]].mean() / 255)
        width = 0.1 * (1 + np.arange(STEPS))[:, None, None] * np.ones((STEPS, ACTION_DIM, 1))
        quantiles = centre[..., None] + width * (np.array(LEVELS) - 0.5)
        actions = centre + (rank - 0.5) * width[..., 0] * (memory["decoder"] == "shared")
        actions = actions + 0.001 * rank
        if observation.state[0] == 777:
            actions[3:] = np.nan
        return RawChunk(actions, quantiles, rank, None if observation.left_over is None else 0.25)


def request(seed: int = 0, size: int = 16, **changes):
    rng = np.random.default_rng(seed)
    observation = {
        **{name: rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for name in CAMERAS},
        "observation/state": rng.uniform(-1, 1, STATE_DIM).astype(np.float32),
        "prompt": "put the can into the basket",
    }
    return {name: value for name, value in (observation | changes).items() if value is not None}


def alone(seeds, *, decoder=None, seed=7):
    """What the model gives to one episode, asked alone."""
    model, answers = FakeModel(), []
    memory = model.begin(seed, decoder)
    for number in seeds:
        wire = request(number)
        seen = Observation({name: wire[name] for name in CAMERAS}, wire["observation/state"], wire["prompt"])
        answers.append(model.predict([seen], [memory])[0].actions)
    return answers
