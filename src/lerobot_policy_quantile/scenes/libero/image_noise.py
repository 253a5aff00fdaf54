"""LIBERO-Plus's sensor noise: five corruptions of the external camera's image, ten severities each.

Numbered 1 to 50 as LIBERO-Plus does: motion blur, Gaussian blur, zoom blur, fog, glass. The parameters are those of
LIBERO-Plus (`env_wrapper.py`, commit 4976dc3); the corruptions are those of Hendrycks and Dietterich, Benchmarking
Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019. Random draws come from the
given generator: the same key and step give the same image.
"""

import math

import numpy as np
from jaxtyping import Float, UInt8
from scipy.ndimage import convolve, gaussian_filter

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
    """The image with noise `number` in 1..50."""
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
    """The picture seen at several enlargements at once: 1, 1 + step, ..., the first of them twice."""
    percents = [0, *range(0, stop, step)]
    mean: Light = np.mean([_stretched(_stretched(light, 0, p), 1, p) for p in percents], axis=0)
    return mean


def _stretched(light: Light, axis: int, percent: int) -> Light:
    """The middle of one axis, enlarged to the old length by linear interpolation.

    A window of whole pixels around the middle is stretched so that its outermost pixels stay outermost, and what does
    not fit is cut off on both sides.
    """
    size, factor = light.shape[axis], 1 + percent / 100
    window = math.ceil(size / factor)
    length = round(window * factor)
    places = (np.arange(size) + (length - size) // 2) * (window - 1) / max(1, length - 1)
    left = places.astype(int)
    part = (places - left).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    offset = (size - window) // 2
    near = light.take(offset + left, axis)
    far = light.take(offset + np.minimum(left + 1, window - 1), axis)
    stretched: Light = near + part * (far - near)
    return stretched


def _fog(light: Light, thickness: float, smoothing: float, generator: np.random.Generator) -> Light:
    clouds = _clouds(max(light.shape[:2]), smoothing, generator)[: light.shape[0], : light.shape[1], None]
    brightest = light.max()
    foggy: Light = (light + thickness * clouds) * brightest / (brightest + thickness)
    return foggy


def _clouds(size: int, smoothing: float, generator: np.random.Generator) -> Float[Array, "y x"]:
    """Random heights in [0, 1] on a torus by midpoint displacement: the map doubles until it has `size` points a side.

    Old points keep their heights. A new one is the mean of its four nearest known neighbours, first across the
    diagonals, then along the axes, plus a draw that weakens with every doubling.
    """
    heights, reach = np.zeros((1, 1)), 100.0
    while len(heights) < max(2, size):
        finer = np.zeros((2 * len(heights), 2 * len(heights)))
        finer[::2, ::2] = heights
        for neighbours, news in ((_DIAGONAL, [(1, 1)]), (_AXES, [(0, 1), (1, 0)])):
            means = convolve(finer, neighbours / 4, mode="wrap")
            for row, column in news:
                drawn = reach * generator.uniform(-reach, reach, heights.shape)
                finer[row::2, column::2] = means[row::2, column::2] + drawn
        heights, reach = finer, reach / smoothing
    lowest, highest = heights.min(), heights.max()
    clouds: Float[Array, "y x"] = (heights - lowest) / (highest - lowest)
    return clouds


_DIAGONAL = np.array([[1.0, 0, 1], [0, 0, 0], [1, 0, 1]])
_AXES = np.array([[0, 1.0, 0], [1, 0, 1], [0, 1, 0]])


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
