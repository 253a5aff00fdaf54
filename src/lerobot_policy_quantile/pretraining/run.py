"""A pretraining run from a seed to a checkpoint: data, training, held-out errors, policy folder. Resumes by stage."""

import json
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from lerobot_policy_quantile.pretraining.budgets import PretrainingBudget
from lerobot_policy_quantile.pretraining.card import data_card
from lerobot_policy_quantile.pretraining.card_suites import suites_card
from lerobot_policy_quantile.pretraining.checkpoint import write_checkpoint
from lerobot_policy_quantile.pretraining.generate import generate
from lerobot_policy_quantile.pretraining.launch import train
from lerobot_policy_quantile.pretraining.proof import ProofFactory, proof_plan, prove
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.pretraining.suite_proof import ProofChoice, prove_suites
from lerobot_policy_quantile.pretraining.train import LOG, Trainer
from lerobot_policy_quantile.scenes.libero.assets import find_assets
from lerobot_policy_quantile.util.files import write_json, write_text
from lerobot_policy_quantile.util.progress import LoggedProgress
from lerobot_policy_quantile.util.tables import boxed

DATA, POLICY, GATE, PROOF, SUITE_PROOF = "data", "policy", "gate.json", "proof", "proof_suites"
TARGET = 0.9
"""Share of the proof's mixed episodes that must succeed."""


def require_assets(budget: PretrainingBudget) -> None:
    """Refuse a budget with LIBERO scenes where LIBERO's assets are not installed."""
    if budget.data != budget.data.without_libero():
        try:
            find_assets()
        except ValueError as error:
            raise ValueError(f"{error}\nor leave LIBERO's scenes out with --no-libero") from None


def require_same_run(out: Path, asked: dict[str, Any]) -> None:
    """Refuse to resume a folder with other settings, which would mix two runs."""
    path = out / "run.json"
    if not path.exists():
        write_text(path, json.dumps(asked) + "\n")
    elif (stored := json.loads(path.read_text())) != asked:
        raise ValueError(f"--out {out} belongs to a run with {stored}; this one has {asked}; choose a new folder")


def pretrain(budget: PretrainingBudget, out: Path, seed: int, workers: int, notes: Console) -> dict[str, float]:
    """Make the data, train and write the checkpoint to OUT/policy; returns the errors on held-out scenes."""
    _make_data(budget, out, seed, workers, notes)
    _train(budget, out, seed, workers, notes)
    trainer = Trainer(out / DATA, out, budget.training, seed, world=workers)
    figures = trainer.gate()
    write_json(out / GATE, figures)
    parameters = sum(p.numel() for p in trainer.student.policy.parameters())
    if trainer.suites is None:
        card = data_card(trainer.samples, budget.training, seed, figures, parameters)
    else:
        card = suites_card(trainer.samples, trainer.suites, budget.training, seed, figures, parameters)
    write_checkpoint(trainer.student, trainer.statistics, out / POLICY, card)
    shutil.copy(out / LOG, out / POLICY / LOG)
    return figures


def print_proof(folder: Path, out: Path, workers: int, notes: Console) -> bool:
    """Run a checkpoint in closed loop from unseen states and print the table; whether the target is met."""
    rows = prove(ProofFactory(str(folder), CAMERA_SIZE), proof_plan(), out, workers, notes)
    cells = [[*map(str, row.values())] for row in rows]
    Console().print(boxed("Base checkpoint, median decoding", [*rows[0]], cells))
    return bool(rows[0]["in the basket"] >= TARGET * rows[0]["episodes"])


def print_suite_proof(folder: Path, out: Path, choice: ProofChoice, workers: int, notes: Console) -> None:
    """Run every chosen head straight from a base in LIBERO's suites and print success per suite."""
    rows = prove_suites(folder, out, choice, workers, notes)
    cells = [[*map(str, row.values())] for row in rows]
    Console().print(boxed("Success straight from the base, LIBERO's suites", [*rows[0]], cells))


def _make_data(budget: PretrainingBudget, out: Path, seed: int, workers: int, notes: Console) -> None:
    shards = budget.data.shards()
    with _bar(notes) as bar:
        have = sum((out / DATA / shard.file).exists() for shard in shards)
        task = bar.add_task("scenes and labels", total=len(shards), completed=have, note="")
        for shard, _, solved in generate(budget.data, out / DATA, seed, workers):
            note = f"({shard.scene} play: {solved} solved)" if shard.kind == "play" else ""
            bar.update(task, advance=1, note=note)


def _train(budget: PretrainingBudget, out: Path, seed: int, workers: int, notes: Console) -> None:
    with _bar(notes) as bar:
        task = bar.add_task("training", total=budget.training.updates, note="")

        def watch(update: int, loss: float) -> None:
            bar.update(task, completed=update, note=f"loss {loss:.3f}")

        train(out / DATA, out, budget.training, seed, workers, watch)


def _bar(notes: Console) -> LoggedProgress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return LoggedProgress(*columns, TextColumn("left {task.fields[note]}"), console=notes)
