"""Digests and seeds are in journals: these are the values they have always had."""

from pathlib import Path

import numpy as np

from lerobot_policy_quantile.adapters.lerobot_folder import fingerprint
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import _hash
from lerobot_policy_quantile.scenes.libero.assets import assets_hash
from lerobot_policy_quantile.serving.session import episode_seed
from lerobot_policy_quantile.util.digests import digest, digest_files, plain_digest, seed_of


def folder(root: Path) -> Path:
    (root / "a").mkdir()
    (root / "a" / "b.txt").write_text("hello")
    (root / "c").write_text("x")
    return root


def test_keys_and_seeds():
    key = EpisodeKey("embedded", 1, 2, 3, "p", "median")
    assert key.digest == "59c22fa35f977c03"
    assert key.noise_seed == 2510882275860521401
    assert seed_of("5 1") == 911950755220601271, "of the first query of a policy that draws from torch"
    assert episode_seed(7, 2) == 5117565805111269565
    assert _hash(np.arange(3.0), np.ones((2, 2), np.float32)) == "cfaccb9287d0b424"


def test_folders(tmp_path):
    found = folder(tmp_path)
    assert fingerprint(found) == "1e169579e49e4847"
    assert assets_hash(found) == "1e169579e49e"


def test_lengths_tell_parts_apart_where_they_count():
    assert plain_digest("ab", "c") == plain_digest("a", b"bc")
    assert digest("ab", "c") != digest("a", "bc")


def test_files_have_their_names_in_the_digest(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("x")
    second.write_text("x")
    assert digest_files([first]) != digest_files([second])
    assert digest_files([first]) == digest("a", "x")
