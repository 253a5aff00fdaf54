"""Batches of observations whose pictures differ in size or are large.

A policy's processor brings pictures to the policy's own size, but takes a batch of one size only and makes floats of
all its pixels first. So rows go through it in pieces of one size and a bounded number of pixels, and are joined behind
it. Processing is row by row in any case: the numbers are those of one batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lerobot_policy_quantile.contract import Observation

PIXELS = 4 * 2**20
"""Most pixels of a piece, all cameras together: 48 MiB as floats. A larger observation is a piece of its own."""

Batch = dict[str, Any]


def in_pieces(observations: Sequence[Observation], process: Callable[[Sequence[Observation]], Batch]) -> Batch:
    """What `process` makes of all observations, in their order."""
    rows = pieces(observations)
    if len(rows) == 1:
        return process(observations)
    return joined([process([observations[row] for row in piece]) for piece in rows], rows)


def pieces(observations: Sequence[Observation]) -> list[list[int]]:
    """Row numbers of pieces of one picture size and at most `PIXELS` pixels."""
    done: list[list[int]] = []
    open_piece: dict[tuple[Any, ...], list[int]] = {}
    for row, seen in enumerate(observations):
        size = tuple((name, image.shape) for name, image in sorted(seen.images.items()))
        pixels = sum(image.shape[0] * image.shape[1] for image in seen.images.values())
        piece = open_piece.get(size)
        if piece is None or (len(piece) + 1) * pixels > PIXELS:
            piece = open_piece[size] = []
            done.append(piece)
        piece.append(row)
    return done


def joined(batches: Sequence[Batch], rows: Sequence[Sequence[int]]) -> Batch:
    """One batch of several, its rows in the order of their numbers."""
    numbers = [number for piece in rows for number in piece]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    return {key: _join(key, [batch[key] for batch in batches], rows, order) for key in batches[0]}


def _join(key: str, parts: list[Any], rows: Sequence[Sequence[int]], order: list[int]) -> Any:
    per_row = all(isinstance(p, Tensor | list) and len(p) == len(piece) for p, piece in zip(parts, rows, strict=True))
    if not per_row:
        return parts[0]  # a setting of the pipeline, not a value of each row
    if isinstance(parts[0], list):
        together = [value for part in parts for value in part]
        return [together[place] for place in order]
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"{key} must have one size in a batch: this policy resizes no pictures; got {sorted(shapes)}")
    return torch.cat(parts)[order]
