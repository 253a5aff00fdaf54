"""`qhead pretrain`: the base checkpoint of the tiny variant, from a seed."""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lerobot_policy_quantile.util.files import write_json, write_text
from lerobot_policy_quantile.util.processes import share_cores
from lerobot_policy_quantile.util.tables import boxed

if TYPE_CHECKING:
    from lerobot_policy_quantile.pretraining.budgets import PretrainingBudget

DATA, POLICY, GATE, PROOF = "data", "policy", "gate.json", "proof"
SEED = 7


def pretrain(
    out: Annotated[Path, typer.Option(help="Folder of the run: data, training log, OUT/policy, figures.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything: scenes, noise, weights, batches.")] = SEED,
    budget: Annotated[str, typer.Option(help="full (an hour on two idle cores) or small (a trial run).")] = "full",
    workers: Annotated[int, typer.Option(min=1, help="Processes, one core each.")] = min(2, os.cpu_count() or 1),
    libero: Annotated[bool, typer.Option(help="Scenes of LIBERO-Object, too; needs LIBERO's assets.")] = True,
    prove: Annotated[bool, typer.Option(help="Afterwards run 150 closed-loop episodes and count.")] = False,
) -> None:
    """Pretrain VLM and expert of the tiny variant together on scripted data in varied scenes.

    Stages: scenes and labels (OUT/data), training (OUT/training.jsonl), the gate (OUT/gate.json: how far
    from the expert's targets the policy's are), the checkpoint (OUT/policy with its data card), the proof
    (OUT/proof). Each is resumed where it was stopped: run the same command again. OUT/policy is a policy
    folder like any other:

    qhead eval --policy OUT/policy --decoder median --camera-size 96 --tasks 0-4 --indices 0-9 --out runs/try
    """
    share_cores(workers)
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
    from lerobot_policy_quantile.pretraining.budgets import budget_named

    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        plan = budget_named(budget) if libero else budget_named(budget).without_libero()
        _require_assets(plan)
        out.mkdir(parents=True, exist_ok=True)
        _require_same_run(out, {"seed": seed, "budget": budget, "workers": workers, "libero": libero})
        _make_data(plan, out, seed, workers, notes)
        _train(plan, out, seed, workers, notes)
        _finish(plan, out, seed, workers)
        if prove:
            print_proof(out / POLICY, out / PROOF, workers, notes)
    except (ValueError, JournalError, EngineError, UnfinishedError) as error:
        notes.print(f"qhead pretrain: {error}", markup=False)
        raise typer.Exit(1) from None


def _require_assets(plan: "PretrainingBudget") -> None:
    """A run that asks for LIBERO's scenes says at once when it cannot have them."""
    from lerobot_policy_quantile.scenes.libero.assets import find_assets

    if plan.data != plan.data.without_libero():
        try:
            find_assets()
        except ValueError as error:
            raise ValueError(f"{error}\nor leave LIBERO's scenes out with --no-libero") from None


def _require_same_run(out: Path, asked: dict[str, Any]) -> None:
    """A folder belongs to one run; resuming with other settings would mix two."""
    path = out / "run.json"
    if not path.exists():
        write_text(path, json.dumps(asked) + "\n")
    elif (stored := json.loads(path.read_text())) != asked:
        raise ValueError(f"--out {out} belongs to a run with {stored}; this one has {asked}; choose a new folder")


def _bar(notes: Console) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from lerobot_policy_quantile.util.progress import LoggedProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return LoggedProgress(*columns, TextColumn("left {task.fields[note]}"), console=notes)


def _make_data(plan: "PretrainingBudget", out: Path, seed: int, workers: int, notes: Console) -> None:
    from lerobot_policy_quantile.pretraining.generate import generate

    shards = plan.data.shards()
    with _bar(notes) as bar:
        have = sum((out / DATA / shard.file).exists() for shard in shards)
        task = bar.add_task("scenes and labels", total=len(shards), completed=have, note="")
        for shard, _, solved in generate(plan.data, out / DATA, seed, workers):
            note = f"({shard.scene} play: {solved} in the basket)" if shard.kind == "play" else ""
            bar.update(task, advance=1, note=note)


def _train(plan: "PretrainingBudget", out: Path, seed: int, workers: int, notes: Console) -> None:
    from lerobot_policy_quantile.pretraining.launch import train

    with _bar(notes) as bar:
        task = bar.add_task("training", total=plan.training.updates, note="")

        def watch(update: int, loss: float) -> None:
            bar.update(task, completed=update, note=f"loss {loss:.3f}")

        train(out / DATA, out, plan.training, seed, workers, watch)


def _finish(plan: "PretrainingBudget", out: Path, seed: int, workers: int) -> None:
    from lerobot_policy_quantile.pretraining.card import data_card
    from lerobot_policy_quantile.pretraining.checkpoint import write_checkpoint
    from lerobot_policy_quantile.pretraining.train import LOG, Trainer

    trainer = Trainer(out / DATA, out, plan.training, seed, world=workers)
    figures = trainer.gate()
    write_json(out / GATE, figures)
    parameters = sum(p.numel() for p in trainer.student.policy.parameters())
    card = data_card(trainer.samples, plan.training, seed, figures, parameters)
    write_checkpoint(trainer.student, trainer.statistics, out / POLICY, card)
    shutil.copy(out / LOG, out / POLICY / LOG)
    for name, value in figures.items():
        typer.echo(f"{name:22} {value:.4g}")
    typer.echo(f"checkpoint in {out / POLICY}")


def print_proof(folder: Path, out: Path, workers: int, notes: Console) -> bool:
    """Closed loop from unseen states; prints the table, returns whether the target (90 %) is met."""
    share_cores(workers)
    from lerobot_policy_quantile.pretraining.proof import ProofFactory, proof_plan, prove
    from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE

    rows = prove(ProofFactory(str(folder), CAMERA_SIZE), proof_plan(), out, workers, notes)
    cells = [[*map(str, row.values())] for row in rows]
    Console().print(boxed("Base checkpoint, median decoding", [*rows[0]], cells))
    return bool(rows[0]["in the basket"] >= 0.9 * rows[0]["episodes"])
