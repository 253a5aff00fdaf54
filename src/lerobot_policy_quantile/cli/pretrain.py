"""`qhead pretrain`: the base checkpoint of the tiny variant, from a seed."""

import os
from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text
from lerobot_policy_quantile.util.processes import share_cores

SEED = 7
BUDGET_HELP = (
    "full (about an hour on two cores), suites (all four LIBERO suites, direct and flow passes: two to three hours),"
    " suites_more, suites_again (two hours each, to go on from --start with other layouts), suites_driven (likewise;"
    " the checkpoint drives now and then and learns the expert's answers), suites_placed (likewise; the hand is also"
    " put around things that are about to be taken), small or suites_small (trial runs)."
)

HELP = help_text(
    "Pretrain the base checkpoint of the tiny variant on scripted demonstrations in randomised scenes.",
    "VLM and action expert are trained together. Stages: scenes and labels (OUT/data), training (OUT/training.jsonl),"
    " errors on held-out scenes (OUT/gate.json), checkpoint with data card (OUT/policy). To resume, run the same"
    " command again. OUT/policy can be used like any other policy folder.",
    examples=(
        "qhead pretrain --out runs/base",
        "qhead pretrain --budget small --no-libero --out runs/try",
        "qhead pretrain --budget suites --out runs/base2",
        "qhead pretrain --budget suites_more --start runs/base2/policy --out more",
        "qhead eval --policy runs/base/policy --camera-size 96 --out runs/a",
    ),
    exit_codes="0 the checkpoint was written; 1 the run could not continue; 2 wrong usage",
)


def pretrain(
    out: Annotated[Path, typer.Option(help="Folder of the run: data, training log, checkpoint.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of scenes, noise, weights and batches.")] = SEED,
    budget: Annotated[str, typer.Option(help=BUDGET_HELP)] = "full",
    workers: Annotated[int, typer.Option(min=1, help="Processes, one core each.")] = min(2, os.cpu_count() or 1),
    libero: Annotated[bool, typer.Option(help="Include scenes of LIBERO; requires LIBERO's assets.")] = True,
    start: Annotated[
        str | None,
        typer.Option(help="Checkpoint to go on from: base_suites or a folder. Default: random weights."),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option(
            help="Then run the checkpoint in 150 closed-loop episodes, with suites also there, and print rates."
        ),
    ] = False,
) -> None:
    """Pretrain the base checkpoint; `HELP` is what the user reads."""
    share_cores(workers)
    from rich.console import Console

    from lerobot_policy_quantile.configuration_quantile import SHIPPED_BASES
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
    from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
    from lerobot_policy_quantile.pretraining import run
    from lerobot_policy_quantile.pretraining.budgets import budget_named
    from lerobot_policy_quantile.pretraining.suite_proof import ProofChoice
    from lerobot_policy_quantile.util.files import require_writable
    from lerobot_policy_quantile.util.locks import alone

    notes = Console(stderr=True, soft_wrap=True, highlight=False)
    with exit_on("pretrain", ValueError, JournalError, EngineError, UnfinishedError):
        plan = budget_named(budget) if libero else budget_named(budget).without_libero()
        require_writable("--out", out)
        if start is not None:
            plan = plan.starting_from(base_checkpoint(start) if start in SHIPPED_BASES else Path(start))
        run.require_assets(plan)
        out.mkdir(parents=True, exist_ok=True)
        with alone(out, "pretraining"):
            asked = {"seed": seed, "budget": budget, "workers": workers, "libero": libero, "start": start}
            run.require_same_run(out, asked)
            for name, value in run.pretrain(plan, out, seed, workers, notes).items():
                typer.echo(f"{name:22} {value:.4g}")
            typer.echo(f"checkpoint in {out / run.POLICY}")
            if prove:
                run.print_proof(out / run.POLICY, out / run.PROOF, workers, notes)
                if plan.training.suite_share:
                    run.print_suite_proof(out / run.POLICY, out / run.SUITE_PROOF, ProofChoice(), workers, notes)
