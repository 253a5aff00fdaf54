"""A policy server that speaks openpi's websocket protocol, as a policy of the closed loop.

`ws://host:8000` asks any such server the way openpi's LIBERO client does: two pictures of 224 x 224, state and prompt
under openpi's names, the first five actions of an answer executed. What differs is written behind a question mark:
`ws://host:8000?steps=10&resize=0&wrist=observation/hand`. Our own server says in its metadata that it is ours; then
episodes carry their seed and decoder, answers bring quantiles, and the server's word decides steps and picture size.

A token, if the server wants one, is read from QHEAD_TOKEN and never written down.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from jaxtyping import UInt8
from PIL import Image

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

SCHEMES = ("ws://", "wss://")
TOKEN_VARIABLE = "QHEAD_TOKEN"


def is_server(source: str) -> bool:
    """Whether a policy source is the address of a policy server."""
    return source.startswith(SCHEMES)


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is and how it wants to be asked; empty names leave an entry out."""

    url: str
    external: str = "observation/image"
    wrist: str = "observation/wrist_image"
    state: str = "observation/state"
    prompt: str = "prompt"
    steps: int = 5
    """Actions executed before the next query; openpi's LIBERO client takes five. Our server knows its own."""
    resize: int = 224
    """Pixels of the padded square picture; 0 sends pictures as they are. Our server's policies resize by themselves."""
    timeout: float = 60.0
    """Seconds to wait for an answer. A server's first answer may compile."""
    replan: float = 0.0
    """Spread in action units beyond which the rest of a chunk is left and asked for again; 0 is off. Ours only."""
    least: int = 1
    """Steps that are executed whatever the spread."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The address in a text such as `ws://host:8000?steps=10&state=observation/joints`."""
        parts = urlsplit(text)
        if not is_server(text) or not parts.hostname:
            raise ValueError(f"server must read like ws://host:8000 or wss://host; got {text!r}")
        kinds: dict[str, Callable[[str], Any]] = {
            field.name: type(field.default) for field in fields(cls) if field.name != "url"
        }
        options: dict[str, Any] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name not in kinds:
                raise ValueError(f"server options are {', '.join(kinds)}; got {name!r} in {text!r}")
            try:
                options[name] = kinds[name](value)
            except ValueError:
                raise ValueError(f"server option {name} must be a number; got {value!r} in {text!r}") from None
        address = cls(parts._replace(query="").geturl(), **options)
        if address.steps < 1 or address.resize < 0 or address.timeout <= 0 or address.replan < 0 or address.least < 1:
            raise ValueError(
                "server options steps, timeout and least must be positive, resize and replan not negative;"
                f" got {text!r}"
            )
        return address

    def request(self, observation: Observation, resize: int) -> dict[str, Any]:
        """An observation in the server's words: pictures as uint8, state as float32."""
        request: dict[str, Any] = {}
        for camera, name in (("external", self.external), ("wrist", self.wrist)):
            if name and camera in observation.images:
                image = np.ascontiguousarray(observation.images[camera])
                request[name] = resize_with_padding(image, resize) if resize else image
        if self.state:
            request[self.state] = np.asarray(observation.state, dtype=np.float32)
        if self.prompt:
            request[self.prompt] = observation.instruction
        return request


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
        return Chunk(self._actions(answer)[:steps], answer.get("quantiles"))

    def _actions(self, answer: Mapping[str, Any]) -> Array:
        actions = answer.get("actions")
        if not isinstance(actions, np.ndarray):
            raise ValueError(f"{self._address.url} must answer with an array 'actions'; got {sorted(answer)}")
        return actions


def resize_with_padding(image: UInt8[Array, "y x 3"], size: int) -> UInt8[Array, "size size 3"]:
    """The picture scaled to fit a square (bilinear) with black bars left over, as openpi's clients send it."""
    height, width = image.shape[:2]
    if (height, width) == (size, size):
        return image
    ratio = max(width, height) / size
    scaled = Image.fromarray(image).resize((int(width / ratio), int(height / ratio)), Image.Resampling.BILINEAR)
    square = Image.new("RGB", (size, size))
    square.paste(scaled, ((size - scaled.width) // 2, (size - scaled.height) // 2))
    return np.asarray(square)


def _digest(metadata: Mapping[str, Any]) -> str:
    text = json.dumps(metadata, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
