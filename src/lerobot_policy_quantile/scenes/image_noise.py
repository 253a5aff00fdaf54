"""LIBERO-Plus's sensor noise: five corruptions of the external camera's picture, ten severities each.

Numbered 1 to 50 as LIBERO-Plus does: motion blur, Gaussian blur, zoom blur, fog, glass. The parameters are those of
LIBERO-Plus (`env_wrapper.py`, commit 4976dc3); the corruptions are those of Hendrycks and Dietterich, Benchmarking
Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019. Whatever is drawn comes from the
generator that is handed in: the same key and step give the same picture.
"""

import math

import numpy as np
from jaxtyping import Float, UInt8
from scipy.ndimage import gaussian_filter, zoom

from lerobot_policy_quantile.scenes.contract import Array

KINDS = ("motion", "gaussian", "zoom", "fog", "glass")
SEVERITIES = 10

MOTION = ((5, 2), (8, 3), (10, 4), (12, 5), (15, 6), (18, 8), (20, 10), (25, 12), (30, 15), (35, 20))
"""Radius and sigma in pixels."""

GAUSSIAN = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
"""Sigma in pixels."""

ZOOM = ((11, 1), (16, 1), (21, 2), (26, 2), (31, 3), (36, 1), (41, 1), (46, 2), (51, 2), (56, 3))
"""Enlargements of 0, step, 2 step, ... below the first number, in per cent."""

FOG = (
    (0.5, 3.0),
    (1.0, 2.8),
    (1.5, 2.5),
    (2.0, 2.2),
    (2.5, 2.0),
    (3.0, 1.8),
    (3.5, 1.6),
    (4.0, 1.5),
    (4.5, 1.4),
    (5.0, 1.3),
)
"""Thickness, and how fast the clouds smooth out."""

GLASS = (
    (0.5, 1, 3),
    (0.7, 1, 3),
    (0.9, 2, 3),
    (1.0, 2, 2),
    (1.1, 3, 2),
    (1.3, 3, 2),
    (1.5, 4, 2),
    (1.8, 4, 2),
    (2.2, 5, 1),
    (2.5, 5, 1),
)
"""Sigma in pixels, farthest displacement in pixels, rounds."""

Picture = UInt8[Array, "y x 3"]
Light = Float[Array, "y x 3"]


def corrupt(picture: Picture, number: int, generator: np.random.Generator) -> Picture:
    """The picture under noise `number` in 1..50."""
    if not 1 <= number <= len(KINDS) * SEVERITIES:
        raise ValueError(f"noise must lie in 1..{len(KINDS) * SEVERITIES}; got {number}")
    kind, severity = divmod(number - 1, SEVERITIES)
    light = picture.astype(np.float64) / 255
    if KINDS[kind] == "motion":
        light = _motion(light, *MOTION[severity], angle=generator.uniform(-45, 45))
    elif KINDS[kind] == "gaussian":
        light = _blur(light, GAUSSIAN[severity])
    elif KINDS[kind] == "zoom":
        light = _zoom(light, *ZOOM[severity])
    elif KINDS[kind] == "fog":
        light = _fog(light, *FOG[severity], generator)
    else:
        light = _glass(light, *GLASS[severity], generator)
    return (np.clip(light, 0, 1) * 255).astype(np.uint8)


def _blur(light: Light, sigma: float) -> Light:
    blurred: Light = gaussian_filter(light, (sigma, sigma, 0), mode="nearest", truncate=4.0)
    return blurred


def _motion(light: Light, radius: int, sigma: float, *, angle: float) -> Light:
    """A trail on one side: half a Gaussian over 2 radius + 1 pixels along the angle, edges continued outwards."""
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    rows, columns = (np.arange(size) for size in light.shape[:2])
    total = np.zeros_like(light)
    for distance, weight in enumerate(weights):
        down = math.ceil(distance * math.sin(math.radians(angle)) - 0.5)
        across = math.ceil(distance * math.cos(math.radians(angle)) - 0.5)
        moved = light[np.clip(rows + down, 0, len(rows) - 1)][:, np.clip(columns + across, 0, len(columns) - 1)]
        total += weight * moved
    return total


def _zoom(light: Light, stop: int, step: int) -> Light:
    """The mean of the picture and its centre, enlarged in steps."""
    factors = [1 + percent / 100 for percent in range(0, stop, step)]
    return (light + sum(_enlarged(light, factor) for factor in factors)) / (len(factors) + 1)


def _enlarged(light: Light, factor: float) -> Light:
    size = light.shape[0]
    window = math.ceil(size / factor)
    first = (size - window) // 2
    bigger = zoom(light[first : first + window, first : first + window], (factor, factor, 1), order=1)
    trim = (bigger.shape[0] - size) // 2
    enlarged: Light = bigger[trim : trim + size, trim : trim + size]
    return enlarged


def _fog(light: Light, thickness: float, smoothing: float, generator: np.random.Generator) -> Light:
    clouds = _clouds(max(light.shape[:2]), smoothing, generator)[: light.shape[0], : light.shape[1], None]
    brightest = light.max()
    foggy: Light = (light + thickness * clouds) * brightest / (brightest + thickness)
    return foggy


def _clouds(size: int, smoothing: float, generator: np.random.Generator) -> Float[Array, "y x"]:
    """A random height map in [0, 1] on a torus by midpoint displacement (diamonds and squares)."""
    side = 1 << max(1, (size - 1).bit_length())
    heights = np.zeros((side, side))
    step, roughness = side, 100.0

    def displaced(sums: Array) -> Array:
        return sums / 4 + roughness * generator.uniform(-roughness, roughness, sums.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        beside = corners + np.roll(corners, -1, axis=0)
        heights[half::step, half::step] = displaced(beside + np.roll(beside, -1, axis=1))
        middles = heights[half::step, half::step]
        vertical, horizontal = middles + np.roll(middles, 1, axis=0), middles + np.roll(middles, 1, axis=1)
        heights[::step, half::step] = displaced(vertical + corners + np.roll(corners, -1, axis=1))
        heights[half::step, ::step] = displaced(horizontal + corners + np.roll(corners, -1, axis=0))
        step, roughness = half, roughness / smoothing
    heights -= heights.min()
    clouds: Float[Array, "y x"] = heights / heights.max()
    return clouds


def _glass(light: Light, sigma: float, farthest: int, rounds: int, generator: np.random.Generator) -> Light:
    """Blur, let every pixel take the value of a random neighbour, last pixel first, and blur again."""
    blurred = np.floor(_blur(light, sigma) * 255) / 255
    height, width = light.shape[:2]
    taken = list(range(height * width))
    down, across = np.arange(height - farthest, farthest, -1), np.arange(width - farthest, farthest, -1)
    places = (down[:, None] * width + across[None]).ravel().tolist()
    for _ in range(rounds):
        moves = generator.integers(-farthest, farthest, size=(2, len(places)))
        for place, move in zip(places, (moves[0] * width + moves[1]).tolist(), strict=True):
            taken[place] = taken[place + move]
    return _blur(blurred.reshape(-1, 3)[taken].reshape(light.shape), sigma)
