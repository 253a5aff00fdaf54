"""The prompt's tokenizer: found, fitted to a backbone, and prompts as tokens, padded on the right and never cut.

Axes: b batch, t text token.
"""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lerobot_policy_quantile.configuration_quantile import SHIPPED_TOKENIZER


def load_tokenizer(source: str) -> Tokenizer:
    """A fast tokenizer from the package, a folder (tokenizer.json) or the hub, its padding token known."""
    if source == SHIPPED_TOKENIZER:
        text = resources.files(__package__).joinpath("tokenizer.json").read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        tokenizer.enable_padding(pad_id=tokenizer.token_to_id("<pad>"), pad_token="<pad>")
        return tokenizer
    folder = Path(source)
    if folder.is_dir() and not (folder / "tokenizer_config.json").exists():
        if not (folder / "tokenizer.json").exists():
            raise ValueError(f"tokenizer must be a folder with tokenizer.json; got {source}, which has none")
        fast: Any = PreTrainedTokenizerFast
        return _with_padding(fast(tokenizer_file=str(folder / "tokenizer.json")), folder)
    try:
        fetched = AutoTokenizer.from_pretrained(source, use_fast=True)
    except OSError as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ValueError(
            f"tokenizer {source!r} cannot be had ({reason}); accept its licence on the hub and log in (hf auth login),"
            " or set policy.tokenizer to a folder with tokenizer.json"
        ) from error
    return _with_padding(fetched, folder)


def _with_padding(fast: Any, folder: Path) -> Tokenizer:
    # A copy: the pipeline's padding must not leak into a tokenizer that others hold.
    tokenizer = Tokenizer.from_str(fast.backend_tokenizer.to_str())
    if fast.pad_token_id is not None:
        tokenizer.enable_padding(pad_id=fast.pad_token_id, pad_token=fast.pad_token)
    elif tokenizer.padding is None:
        known = [name for name in ("<pad>", "[PAD]") if tokenizer.token_to_id(name) is not None]
        if not known:
            raise ValueError(f"tokenizer must have a padding token; {folder} names none in {_files(folder)}")
        tokenizer.enable_padding(pad_id=tokenizer.token_to_id(known[0]), pad_token=known[0])
    return tokenizer


def _files(folder: Path) -> str:
    return json.dumps(sorted(path.name for path in folder.glob("*.json"))) if folder.is_dir() else "the hub's files"


def fit_tokenizer(tokenizer: Tokenizer, max_length: int, vocab_size: int | None) -> Tokenizer:
    """The same one, set to pad every prompt to `max_length`; refuses tokens that the backbone does not have."""
    largest = max(tokenizer.get_vocab().values())
    if vocab_size is not None and largest >= vocab_size:
        raise ValueError(
            f"tokenizer must fit the backbone's vocabulary of {vocab_size}; its largest token is {largest};"
            " set policy.tokenizer to the one this backbone was made for"
        )
    tokenizer.no_truncation()
    pad = (tokenizer.padding or {}).get("pad_id", 0)
    tokenizer.enable_padding(length=max_length, pad_id=pad, pad_token=tokenizer.id_to_token(pad))
    return tokenizer


def tokenize(
    tokenizer: Tokenizer, prompts: Sequence[str], max_length: int
) -> tuple[Int[Tensor, "b t"], Bool[Tensor, "b t"]]:
    """Tokens of every prompt, and which of them are real; a prompt that is too long is refused."""
    encoded = tokenizer.encode_batch(prompts)
    for text in encoded:
        if len(text.ids) > max_length:
            raise ValueError(
                f"tokenizer_max_length must hold the whole prompt, {len(text.ids)} tokens; got {max_length};"
                " raise policy.tokenizer_max_length or shorten the instruction"
            )
    valid = torch.tensor([text.attention_mask for text in encoded]).bool()
    return torch.tensor([text.ids for text in encoded]), valid


def tokenizer_to_tensor(tokenizer: Tokenizer) -> Int[Tensor, " n"]:
    """Its own JSON as bytes, which is how a pipeline's state is saved."""
    return torch.tensor(list(tokenizer.to_str().encode()), dtype=torch.uint8)


def tokenizer_from_tensor(saved: Int[Tensor, " n"]) -> Tokenizer:
    """The tokenizer of a saved pipeline."""
    return Tokenizer.from_str(bytes(saved.tolist()).decode())
