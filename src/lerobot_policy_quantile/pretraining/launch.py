"""Starts the processes that train together (none can go on without the others) and watches their log."""

import json
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

from lerobot_policy_quantile.pretraining.train import LOG, PROGRESS, Trainer, TrainingBudget, run_rank

POLL = 2.0  # seconds


def train(
    data: Path, out: Path, budget: TrainingBudget, seed: int, workers: int, watch: Callable[[int, float], None]
) -> None:
    """Train to the end; `watch` gets the last logged update and its loss."""
    if workers == 1:
        Trainer(data, out, budget, seed).run(lambda update, losses: watch(update, losses["total"]))
        return
    context = get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (workers, str(Path(folder) / "meeting"), (data, out, budget, seed))
        ranks = [context.Process(target=run_rank, args=(rank, *arguments)) for rank in range(workers)]
        for rank in ranks:
            rank.start()
        try:
            while any(rank.is_alive() for rank in ranks):
                _report(out, watch)
                if any(rank.exitcode for rank in ranks):
                    break
                time.sleep(POLL)
        finally:
            for rank in ranks:
                if rank.is_alive():
                    rank.terminate()
                rank.join()
    _report(out, watch)
    if any(rank.exitcode for rank in ranks):
        codes = [rank.exitcode for rank in ranks]
        raise RuntimeError(f"training processes ended with exit codes {codes}; {PROGRESS} is kept, run again to go on")


def _report(out: Path, watch: Callable[[int, float], None]) -> None:
    path = out / LOG
    lines = path.read_text().splitlines() if path.exists() else []
    if lines:
        last = json.loads(lines[-1])
        watch(last["update"], last["total"])
