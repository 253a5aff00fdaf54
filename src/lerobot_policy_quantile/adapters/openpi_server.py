"""A policy server for openpi's websocket protocol, as a policy of the closed loop.

Any such server is asked as its address says (`server_address.py`). Our own server says in its metadata that it is ours;
then episodes carry their seed and decoder, answers bring quantiles, and the server decides steps and picture size.

A token, if the server wants one, is read from QHEAD_TOKEN and never written down.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from lerobot_policy_quantile.adapters.server_address import ServerAddress
from lerobot_policy_quantile.contract import (
    OWN_DECODER,
    Array,
    Chunk,
    Observation,
    UnusablePolicyError,
    World,
)
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import BLOCK
from lerobot_policy_quantile.serving.spread import Replanning, served_grippers
from lerobot_policy_quantile.util.digests import plain_digest

TOKEN_VARIABLE = "QHEAD_TOKEN"


class ServerPolicy:
    """The closed loop's policy at the other end of a connection. Rows are asked one after the other."""

    needs_images = True

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._client = PolicyClient(address.url, token=os.environ.get(TOKEN_VARIABLE), timeout=address.timeout)
        if address.replan and not self._client.metadata.get("levels"):
            raise ValueError(f"replan must be left out for {address.url}, which predicts no quantiles")
        self._replanning = Replanning(address.replan, address.least) if address.replan else None

    @property
    def n_action_steps(self) -> int:
        """As our server says, or as the address does."""
        return int(self._client.metadata["n_action_steps"]) if self._client.ours else self._address.steps

    @property
    def context(self) -> Mapping[str, str]:
        """Our server names its policy's own context; any other one is known by its metadata alone."""
        if self._client.ours:
            context = {str(name): str(value) for name, value in self._client.metadata["context"].items()}
            return context if self._replanning is None else {**context, "replanning": str(self._replanning)}
        settings = {field.name: str(getattr(self._address, field.name)) for field in fields(self._address)}
        for unused in ("url", "timeout", "replan", "least"):
            del settings[unused]
        return {"policy": f"openpi server {_digest(self._client.metadata)}", **settings}

    def require_decoder(self, decoder: str) -> None:
        """Refuse a decoder that the server cannot know."""
        if decoder != OWN_DECODER and not self._client.ours:
            raise UnusablePolicyError(
                f"decoder must be {OWN_DECODER!r} for {self._address.url}, which is no quantile server; got {decoder!r}"
            )
        if decoder != OWN_DECODER and not self._client.metadata.get("levels"):
            raise UnusablePolicyError(
                f"decoder must be {OWN_DECODER!r} for {self._address.url}, which predicts no quantiles; got {decoder!r}"
            )

    def begin(self, seed: int, world: World | None, decoder: str = OWN_DECODER) -> str | None:
        """A session with the episode's seed and decoder on our server; other servers draw their own noise."""
        self.require_decoder(decoder)
        if not self._client.ours:
            return None
        wishes = {} if decoder == OWN_DECODER else {"decoder": decoder}
        answer = self._client.infer({}, reset=True, new_session=True, seed=seed, **wishes)
        return str(answer[BLOCK]["session"])

    def act(self, observations: Sequence[Observation], memories: Sequence[str | None]) -> list[Chunk]:
        """One request per row."""
        return [self._ask(observation, session) for observation, session in zip(observations, memories, strict=True)]

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _ask(self, observation: Observation, session: str | None) -> Chunk:
        if session is None:
            answer = self._client.infer(self._address.request(observation, self._address.resize))
            return Chunk(self._actions(answer))
        request = self._address.request(observation, 0)
        want = ["quantiles", "spread"] if self._client.metadata["levels"] else []
        answer = self._client.infer(request, session=session, want=want)
        steps = None
        if self._replanning is not None:
            steps = self._replanning.steps(answer["spread"], served_grippers(self._client.metadata))
        alarm = answer["alarm"]["on"] if "alarm" in answer else None
        return Chunk(self._actions(answer)[:steps], answer.get("quantiles"), alarm=alarm)

    def _actions(self, answer: Mapping[str, Any]) -> Array:
        actions = answer.get("actions")
        if not isinstance(actions, np.ndarray):
            raise ValueError(f"{self._address.url} must answer with an array 'actions'; got {sorted(answer)}")
        return actions


def _digest(metadata: Mapping[str, Any]) -> str:
    return plain_digest(json.dumps(metadata, sort_keys=True, default=repr))
