"""The full-size script on the tiny variant: what `make fullsize` does, within seconds."""

import importlib.util
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lerobot_policy_quantile.backbone import VARIANTS

TINY = VARIANTS["tiny"]
SCRIPT = Path(__file__).parents[2] / "scripts" / "fullsize.py"


@pytest.fixture(scope="module")
def fullsize():
    spec = importlib.util.spec_from_file_location("fullsize", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_saved_in_shards_and_reloaded_gives_the_same_chunk(fullsize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fullsize, "SHARD_SIZE", "2MB")
    (tmp_path / "shards").mkdir()
    phase = fullsize.run_phase("build", fullsize.build_run_save, TINY, tmp_path)
    assert phase.note.startswith("0.002 B parameters")
    assert "on the fast path" in phase.note
    assert phase.peak_bytes > 0
    shards = sorted((tmp_path / "shards").glob("*.safetensors"))
    assert len(shards) > 2
    assert "same chunk, bit for bit, (1, 10, 7, 21)" in fullsize.reload_run(TINY, tmp_path)
    spoilt = load_file(shards[0])
    save_file({name: tensor + 1 for name, tensor in spoilt.items()}, shards[0], metadata={"format": "pt"})
    with pytest.raises(ValueError, match="the reloaded chunk differs by up to"):
        fullsize.reload_run(TINY, tmp_path)


def test_a_fast_path_that_differs_and_a_greedy_load_are_errors(fullsize):
    model = fullsize.Model(TINY, seed=1)
    plain = model.chunk()
    with pytest.raises(ValueError, match="the fast path differs by"):
        fullsize.fast_note(model, plain * 1.001)
    gib = fullsize.GIB
    assert fullsize.loading_note(10 * gib, 11 * gib) == "loading peaked at 1.10 times the weights"
    with pytest.raises(ValueError, match=r"loading took 1.20 times the memory of the weights, above 1.15"):
        fullsize.loading_note(10 * gib, 12 * gib)


def test_training_step_and_tables(fullsize, tmp_path: Path):
    note = fullsize.train_step(TINY, tmp_path)
    assert note.startswith("loss 0.")
    table = fullsize.phase_table(TINY, [fullsize.Phase("train", 1.0, 2 * 2**30, note)])
    assert table.row_count == 1
    assert fullsize.memory_table(TINY).row_count == 5


def test_too_little_memory_is_refused_before_it_is_used(fullsize):
    fullsize.require_memory("build", 1)
    with pytest.raises(MemoryError, match=r"'build' needs 1048576\.0 GiB of free memory"):
        fullsize.require_memory("build", 2**50)


def test_a_refused_phase_loses_no_measurement(fullsize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """Training does not fit: the phases before it are in the table all the same, and the exit is not zero."""

    def refuse_training(name: str, needed: int) -> None:
        if "training" in name:
            raise MemoryError(f"{name!r} needs more")

    class Here:
        """Runs a phase in this process."""

        def __init__(self, **_: object) -> None:
            pass

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: None  # noqa: E731

        def submit(self, work, *arguments):
            future: Future = Future()
            future.set_result(work(*arguments))
            return future

    monkeypatch.setattr(fullsize, "require_memory", refuse_training)
    monkeypatch.setattr(fullsize, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(sys, "argv", ["fullsize.py", "--variant", "tiny", "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match="'one training step' needs more; close other programs"):
        fullsize.main()
    printed = capsys.readouterr().out
    assert "same chunk, bit for bit" in printed
    assert "training with a frozen VLM, computed" in printed
    assert list(tmp_path.iterdir()) == []


def test_other_seeds_give_other_chunks(fullsize):
    chunks = [fullsize.Model(TINY, seed).chunk() for seed in (1, 1, 2)]
    assert torch.equal(chunks[0], chunks[1])
    assert not torch.allclose(chunks[0], chunks[2])
