"""Where a policy server is and how it is asked; no websocket is needed to read or refuse an address.

`ws://host:8000` asks any server for openpi's protocol the way openpi's LIBERO client does: two pictures of
224 x 224, state and prompt under openpi's names, the first five actions of an answer executed. What differs is written
behind a question mark: `ws://host:8000?steps=10&resize=0&wrist=observation/hand`.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from lerobot_policy_quantile.contract import WIRE_NAMES, Array, Observation

SCHEMES = ("ws://", "wss://")


def is_server(source: str) -> bool:
    """Whether a policy source is the address of a policy server."""
    return source.startswith(SCHEMES)


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is and how it wants to be asked; empty names leave an entry out."""

    url: str
    external: str = WIRE_NAMES["external"]
    wrist: str = WIRE_NAMES["wrist"]
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
