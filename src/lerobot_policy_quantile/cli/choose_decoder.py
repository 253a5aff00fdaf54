"""`qhead choose-decoder`: which decoder succeeds most often, with few episodes."""

import os
from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on, usage_errors
from lerobot_policy_quantile.cli.options import CameraSizeOption, DeviceOption, JsonOption, SceneHelp, help_text
from lerobot_policy_quantile.util.processes import share_cores

HELP = help_text(
    "Find the decoder of a policy that succeeds most often, by successive rejects.",
    "Decoders run on the same episodes in phases; after each phase the worst is dropped, so that most of --budget goes"
    " to those that are hard to tell apart. Prints success with Wilson intervals, the probability that the chosen one"
    " is the best, and paired comparisons with it. OUT/choice.json holds the same.",
    "To resume, run the same command again: finished episodes are in OUT/journal.sqlite.",
    examples=("qhead choose-decoder --policy A --decoder median --decoder shared --out o",),
    exit_codes="0 a decoder was chosen; 1 the run could not continue or was stopped; 2 wrong usage",
)


def choose_decoder(
    out: Annotated[Path, typer.Option(help="Folder of the run: journal, side files, choice.json.")],
    policy: Annotated[str, typer.Option(help="Folder of a saved policy with the quantile head; NAME=FOLDER names it.")],
    decoder: Annotated[list[str], typer.Option(help="Decoder to compare, at least two. Repeat.")],
    scene: Annotated[str, typer.Option(help=SceneHelp)] = "embedded",
    tasks: Annotated[str, typer.Option(help="Task numbers, such as 0-9 or 0,3.")] = "0",
    indices: Annotated[str, typer.Option(help="Numbers of the stored initial states.")] = "0-49",
    seeds: Annotated[str, typer.Option(help="Seeds; every initial state can be run once per seed.")] = "0",
    budget: Annotated[int, typer.Option(min=3, help="Episodes of all decoders together.")] = 100,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one simulator each.")] = min(
        4, os.cpu_count() or 1
    ),
    camera_size: CameraSizeOption = 256,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose a decoder; `HELP` is what the user reads."""
    share_cores(workers)
    import json

    from rich.console import Console

    from lerobot_policy_quantile.adapters.episode_plan import decoders_of
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.adapters.policy_decoders import require_decoders
    from lerobot_policy_quantile.adapters.policy_sources import parse_policies
    from lerobot_policy_quantile.cli.eval import choose_and_print_device
    from lerobot_policy_quantile.contract import CAMERA_KEYS
    from lerobot_policy_quantile.evaluation.engine import EngineError
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.plan import parse_numbers
    from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
    from lerobot_policy_quantile.studies.decoder_choice import DecoderChoice, choice_table
    from lerobot_policy_quantile.studies.decoder_choice import choose_decoder as choose

    with usage_errors(ValueError):
        sources = parse_policies([policy], CAMERA_KEYS)
        known = decoders_of(sources, decoder)
        require_decoders(sources, known)
        (name,) = sources
        names = tuple(dict.fromkeys(known[name]))
        if len(names) < 2:
            raise ValueError(f"--decoder must be given at least twice, with different decoders; got {', '.join(names)}")
        choice = DecoderChoice(
            name,
            names,
            scene,
            parse_numbers("--tasks", tasks),
            parse_numbers("--indices", indices),
            parse_numbers("--seeds", seeds),
            budget,
        )
        factory = SceneFactory(sources, camera_size, choose_and_print_device(device, sources, "local"))
    with exit_on("choose-decoder", UnfinishedError, JournalError, EngineError, ValueError):
        factory.require_possible(choice.keys(names[0], choice.phases[-1]))
        record = choose(choice, factory, out, workers=workers, console=Console(stderr=True))
    typer.echo(json.dumps(record, indent=2) if as_json else choice_table(record), nl=as_json)
