"""`make choice-study`: decoders by successive rejects, and the choice confirmed on episodes that it was not made on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import Factory
from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.drawing.plan_rates import Bar, rates_panel
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.tables.intervals import Comparison, compare
from lerobot_policy_quantile.evaluation.whole_run import run_whole
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.studies.choosing.settings import (
    BASE,
    CONFIRMING_SEEDS,
    DECODERS,
    FIRST_CONFIRMING_START,
    SUITES,
    ChoosingStudy,
)
from lerobot_policy_quantile.studies.decoder_choice import DecoderChoice, choice_lines, choose_decoder
from lerobot_policy_quantile.studies.two_demo.base_folder import SHIPPED, base_folder
from lerobot_policy_quantile.studies.two_demo.closed_loop import StudyFactory
from lerobot_policy_quantile.studies.two_demo.demos import KEY
from lerobot_policy_quantile.studies.two_demo.records import policy_name
from lerobot_policy_quantile.studies.two_demo.run import train_study
from lerobot_policy_quantile.util.files import write_text
from lerobot_policy_quantile.util.progress import Narrator
from lerobot_policy_quantile.util.tables import markdown

QUANTILE = "quantile"
MEDIAN, SAMPLER = "median", "shared"
"""What a task is searched with: it is the one where the second has most more successes than the first."""
Solved = Mapping[tuple[str, int, str], int]
"""Suite, task and decoder -> episodes solved."""


@dataclass(frozen=True)
class ChoicePlace:
    """One scene: what is chosen there, by whom it is run, and what confirms it."""

    title: str
    choice: DecoderChoice
    factory: Factory
    confirming: tuple[tuple[int, int], ...]
    """Initial states and seeds."""
    folder: Path


@dataclass(frozen=True)
class Chosen:
    """What came out at one place."""

    title: str
    record: Mapping[str, Any]
    rival: str
    confirmed: Comparison
    """The chosen decoder against the rival, on other episodes."""


def run_choosing(study: ChoosingStudy) -> None:
    """Run what is missing and write the page."""
    solved = search(study)
    suite, task = where_sampling_pays(solved)
    places = [*demonstrated_places(study), libero_place(study, suite, task)]
    found = [chosen_at(place, study) for place in places]
    figure = choice_figure(found)
    write_text(study.page.with_suffix(".svg"), figure.svg_file())
    write_text(study.page, page(study, solved, found, figure))
    study.notes.print(f"wrote {study.page}", markup=False)


def search(study: ChoosingStudy) -> Solved:
    """Episodes solved per task of the suites by the median and by a sampler."""
    cases = list(product(SUITES, study.size.tasks, study.size.searched, (MEDIAN, SAMPLER)))
    plan = Plan(tuple(EpisodeKey(suite, task, state, 0, QUANTILE, decoder) for suite, task, state, decoder in cases))
    rows = run_whole(plan, study.out / "search", _libero(), workers=study.workers, console=study.notes)
    solved = dict.fromkeys(((suite, task, decoder) for suite, task, _, decoder in cases), 0)
    for row in rows:
        solved[row.key.scene, row.key.task, row.key.decoder] += row.status == "success"
    return solved


def where_sampling_pays(solved: Solved) -> tuple[str, int]:
    """The task with most more successes of the sampler; of equal ones the first."""
    found = gains(solved)
    return max(found, key=lambda place: found[place])


def gains(solved: Solved) -> dict[tuple[str, int], int]:
    """By how many episodes the sampler is better than the median, per task."""
    tasks = dict.fromkeys((suite, task) for suite, task, _ in solved)
    return {place: solved[*place, SAMPLER] - solved[*place, MEDIAN] for place in tasks}


def demonstrated_places(study: ChoosingStudy) -> list[ChoicePlace]:
    """Every scene of the two demonstrations, its policy trained first."""
    size, settings, folder = study.size, study.size.demonstrations, study.out / "two_demo"
    train_study(
        folder,
        settings,
        base_folder(SHIPPED),
        workers=study.workers,
        narrator=Narrator(study.notes),
        heads=(QUANTILE,),
    )
    task, shared, _ = KEY
    near = tuple(range(shared + 1, shared + 1 + size.starts))
    others = range(shared + FIRST_CONFIRMING_START, shared + FIRST_CONFIRMING_START + size.confirming)
    name = policy_name(QUANTILE, settings.first_seed)
    return [
        ChoicePlace(
            title=f"Two demonstrations, `{arm}`",
            choice=DecoderChoice(name, DECODERS, arm, (task,), near, (0,), size.budget),
            factory=StudyFactory(folder / arm, settings),
            confirming=tuple((start, 0) for start in others),
            folder=study.out / arm,
        )
        for arm in settings.arms
    ]


def libero_place(study: ChoosingStudy, suite: str, task: int) -> ChoicePlace:
    """The searched task."""
    size = study.size
    return ChoicePlace(
        title=f"`{suite}`, task {task}",
        choice=DecoderChoice(QUANTILE, DECODERS, suite, (task,), size.chosen_on, size.seeds, size.budget),
        factory=_libero(),
        confirming=tuple(product(size.confirmed_on, CONFIRMING_SEEDS)),
        folder=study.out / f"{suite}_{task}",
    )


def chosen_at(place: ChoicePlace, study: ChoosingStudy) -> Chosen:
    """Choose, then run the chosen one and the median, or the last rival of a chosen median, on other episodes."""
    choice = place.choice
    record = choose_decoder(choice, place.factory, place.folder, workers=study.workers, console=study.notes)
    best, last = (arm["decoder"] for arm in record["decoders"][:2])
    rival = last if best == MEDIAN else MEDIAN
    (task,) = choice.tasks
    pairs = [
        tuple(EpisodeKey(choice.scene, task, state, seed, choice.policy, decoder) for decoder in (best, rival))
        for state, seed in place.confirming
    ]
    plan = Plan(tuple(key for pair in pairs for key in pair))
    rows = run_whole(plan, place.folder / "confirmed", place.factory, workers=study.workers, console=study.notes)
    won = {row.key: row.status == "success" for row in rows}
    return Chosen(place.title, record, rival, compare([(won[a], won[b]) for a, b in pairs]))


def choice_figure(found: Sequence[Chosen]) -> Figure:
    """One panel per place, a row per decoder; decoders that were dropped early have fewer episodes."""
    panels = [
        rates_panel(
            chosen.title.replace("`", ""),
            [
                Bar(arm["decoder"], (100 * arm["successes"] / arm["episodes"], 100 * arm["low"], 100 * arm["high"]),
                    arm["episodes"], None)
                for arm in chosen.record["decoders"]
            ],
        )
        for chosen in found
    ]  # fmt: skip
    return Figure(
        "decoder_choice",
        "Decoders chosen",
        "Success with its 95 % interval, the chosen decoder first; episodes at the right.",
        panels,
        columns=2,
    )


def page(study: ChoosingStudy, solved: Solved, found: Sequence[Chosen], figure: Figure) -> str:
    """The page in Markdown."""
    differences = gains(solved).values()
    parts = [
        "# Decoders chosen",
        "After this page you can tell what `qhead choose-decoder` finds where demonstrations go two ways and in a"
        " LIBERO task, and whether other episodes confirm it. Per choice all decoders together have"
        f" {study.size.budget} episodes. Policies: a quantile head of two demonstrations per scene"
        f" ({study.size.demonstrations.updates} updates), started a centimetre or so from where these began; in LIBERO"
        " the shipped `base_suites` without fine-tuning.",
        "```sh\nmake choice-study\n```",
        f"![{figure.caption}]({study.page.stem}.svg)\n\n*{figure.caption}*",
        *(section(chosen) for chosen in found),
        "## How the LIBERO task was found",
        f"Of {len(solved) // 2} tasks of {' and '.join(SUITES)} the one where `{SAMPLER}` solves most more than"
        f" `{MEDIAN}`, with {len(study.size.searched)} episodes each, on initial states that were not used again; the"
        " best of many differences is partly luck, which is why the choice is confirmed."
        f" `{SAMPLER}` solves more in {sum(more > 0 for more in differences)} of them; in the one that was taken the"
        f" difference is {max(differences)}. Tasks in which both solve as many are left out below.",
        search_table(solved),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def section(chosen: Chosen) -> str:
    """One place: every decoder, what is said about them, and what other episodes say."""
    header, *lines = choice_lines(chosen.record)
    best = chosen.record["best"]
    return "\n\n".join(
        [
            f"## {chosen.title}",
            markdown(header, lines).strip(),
            chosen.record["statement"],
            f"On other episodes: {chosen.confirmed.sentence(f'`{best}`', f'`{chosen.rival}`')}",
        ]
    )


def search_table(solved: Solved) -> str:
    """Tasks in which the two differ, the sampler's best first."""
    tasks = dict.fromkeys((suite, task) for suite, task, _ in solved)
    counts = [(suite, task, solved[suite, task, MEDIAN], solved[suite, task, SAMPLER]) for suite, task in tasks]
    differing = sorted((each for each in counts if each[2] != each[3]), key=lambda each: each[2] - each[3])
    return markdown(("suite", "task", MEDIAN, SAMPLER), [list(map(str, each)) for each in differing])


def _libero() -> SceneFactory:
    return SceneFactory({QUANTILE: str(base_checkpoint(BASE))}, CAMERA_SIZE)
