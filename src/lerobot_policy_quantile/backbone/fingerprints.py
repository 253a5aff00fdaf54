"""Fingerprints of tensors, computed where the tensors are: only the result crosses to the host.

A fingerprint is a sum of 32-bit words times fixed random 64-bit numbers, modulo 2^64: integers, so that order of
summation and device do not matter. Two different rows agree by chance once in 2^33 cases or fewer. It guards against
mistakes, not against intent.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lerobot_policy_quantile.core._devices import send

METHOD = "multilinear-64"
"""Written beside what was fingerprinted: another method is another fingerprint."""
_BLOCK = 1 << 15
_STEP = 0x5851F42D4C957F2D
"""Odd: how far a fingerprint is turned between blocks and parts."""


def row_digests(parts: Iterable[Tensor]) -> Int[Tensor, " b"]:
    """Of every row of a batch: a fingerprint of all parts, on their device."""
    digest: Tensor | None = None
    for part in parts:
        words = _words(part)
        digest = words.new_zeros(len(words), dtype=torch.int64) if digest is None else digest
        factors = _factors(words.device)
        for block in torch.split(words, _BLOCK, dim=1):
            digest = digest * _STEP + (block * factors[: block.shape[1]]).sum(1)
    if digest is None:
        raise ValueError("parts must hold at least one tensor; got none")
    return digest


def weights_digest(weights: Iterable[Tensor]) -> str:
    """Of weights, whatever their precision and place."""
    each = [row_digests([weight.detach()[None]]) for weight in weights]
    return hashlib.sha256(torch.cat(each).cpu().numpy().tobytes()).hexdigest()[:16]


def _words(part: Tensor) -> Int[Tensor, "b n"]:
    """A row's memory as integers; bytes and half words one by one."""
    flat = part.detach().reshape(len(part), -1).contiguous()
    if flat.dtype == torch.bool:
        return flat.to(torch.uint8)
    return flat.view({1: torch.uint8, 2: torch.int16}.get(flat.element_size(), torch.int32))


@lru_cache(maxsize=4)
def _factors(device: torch.device) -> Int[Tensor, " n"]:
    """One random number per word of a block, the same for ever and everywhere: mixed from the word's place."""
    mixed = np.arange(1, _BLOCK + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return send(torch.from_numpy(mixed.view(np.int64)), device)
