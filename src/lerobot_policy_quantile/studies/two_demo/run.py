"""A study from demonstrations to the closed loop, stage by stage; running it again goes on where it stopped."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.scenes.demonstrations import Demonstration
from lerobot_policy_quantile.studies.two_demo import checks, closed_loop, demos, first_draws, records, training
from lerobot_policy_quantile.studies.two_demo.settings import StudySettings, fix_settings
from lerobot_policy_quantile.studies.two_demo.start import base_fingerprint
from lerobot_policy_quantile.util.files import write_json
from lerobot_policy_quantile.util.pool import WorkerPool
from lerobot_policy_quantile.util.progress import LoggedProgress, Narrator


class Stopped(RuntimeError):  # noqa: N818
    """Ctrl-C ended the closed loop early; the same command goes on."""


def run_study(out: Path, settings: StudySettings, base: str, *, workers: int, narrator: Narrator) -> bool:
    """Run what is missing. True if every episode has a result, False if some ended in an error."""
    train_study(out, settings, base, workers=workers, narrator=narrator)
    folders = [out / arm for arm in settings.arms]
    with WorkerPool(workers) as pool:
        _draw(pool, folders, settings, base, narrator)
    whole = [_roll(folder, settings, workers, narrator) for folder in folders]
    return all(whole)


def train_study(
    out: Path,
    settings: StudySettings,
    base: str,
    *,
    workers: int,
    narrator: Narrator,
    heads: Sequence[str] = records.HEADS,
) -> None:
    """The stages up to the trained heads."""
    fix_settings(out, settings, base_fingerprint(base))
    folders = [out / arm for arm in settings.arms]
    with WorkerPool(workers) as pool:
        _collect(pool, folders, settings, narrator)
        _cache(pool, folders, settings, base, narrator)
        _train(pool, folders, settings, base, narrator, heads)


def _collect(pool: WorkerPool, folders: list[Path], settings: StudySettings, narrator: Narrator) -> None:
    missing = [folder for folder in folders if not demos.stamp_of(folder, settings).done()]
    if not missing:
        narrator.say("demonstrations: done before")
        return
    with narrator.stage(f"demonstrations, left and right, in {_names(missing)}"):
        work = [(folder.name, side, settings) for folder in missing for side in demos.sides(folder.name)]
        driven: dict[str, dict[str, Demonstration]] = {folder.name: {} for folder in missing}
        facts = {}
        for number, (demonstration, scene_facts) in pool.each(demos.drive, work):
            arm, side, _ = work[number]
            driven[arm][side], facts[arm] = demonstration, scene_facts
        for folder in missing:
            found = demos.keep(folder, driven[folder.name], facts[folder.name])
            narrator.say(f"  {folder.name}: {'; '.join(check.figure for check in found)}")
            checks.record_checks(folder, found)
            demos.stamp_of(folder, settings).write()


def _cache(pool: WorkerPool, folders: list[Path], settings: StudySettings, base: str, narrator: Narrator) -> None:
    with narrator.stage("frozen prefixes, one VLM pass per demonstration step"):
        for number, built in pool.each(training.prepare_cache, [(folder, settings, base) for folder in folders]):
            narrator.say(f"  {folders[number].name}: {'built' if built else 'the cache fits weights and data'}")


def _train(
    pool: WorkerPool,
    folders: list[Path],
    settings: StudySettings,
    base: str,
    narrator: Narrator,
    heads: Sequence[str],
) -> None:
    jobs = [
        job
        for seed in settings.training_seeds
        for folder in folders
        for head in heads
        if not (job := training.TrainingJob(folder, settings, base, head, seed)).stamp.done()
    ]
    if jobs:
        _train_jobs(pool, jobs, settings, narrator)
    else:
        narrator.say("training: done before")
    for folder in folders:
        for seed in settings.training_seeds:
            _check_common(folder, seed)


def _train_jobs(
    pool: WorkerPool, jobs: list[training.TrainingJob], settings: StudySettings, narrator: Narrator
) -> None:
    done = [0] * len(jobs)
    with narrator.stage(f"training {len(jobs)} heads, {settings.updates} updates each"), training_bar(narrator) as bar:
        total = bar.add_task("updates", total=len(jobs) * settings.updates, text="")

        def told(number: int, updates: int, loss: float) -> None:
            done[number] = updates
            bar.update(total, completed=sum(done), text=f"{jobs[number].name} loss {loss:.4f}")

        for number, trained in pool.each(training.train, [(job,) for job in jobs], told):
            done[number] = settings.updates
            _keep(trained, narrator)


def _keep(trained: training.Trained, narrator: Narrator) -> None:
    """Write down a trained head: checks first, then its curve, then the stamp that says it is whole."""
    job = trained.job
    checks.record_checks(job.folder, trained.checks)
    narrator.say(
        f"  {job.name}: loss {trained.curve['losses'][-1]:.4f}, {trained.curve['seconds']:.0f} s;"
        f" {trained.checks[0].figure}"
    )
    path = records.seed_folder(job.folder, job.training_seed) / records.CURVES
    curves = json.loads(path.read_text()) if path.is_file() else {}
    hashes = {"initialisation": trained.initialisation, "batches": trained.batches}
    write_json(path, curves | {job.head: trained.curve | hashes})
    job.stamp.write()


def _check_common(folder: Path, seed: int) -> None:
    """All heads of a training run began with the same weights and saw the same batches."""
    curves = json.loads((records.seed_folder(folder, seed) / records.CURVES).read_text())
    common = {"initialisation": "initialisation", "batches": "batch sequence"}
    checks.record_checks(
        folder,
        [
            checks.same_everywhere(f"{words} (seed {seed})", {head: curve[field] for head, curve in curves.items()})
            for field, words in common.items()
        ],
    )


def _draw(pool: WorkerPool, folders: list[Path], settings: StudySettings, base: str, narrator: Narrator) -> None:
    missing = [
        (folder, seed, settings, base)
        for folder in folders
        for seed in settings.training_seeds
        if not first_draws.stamp_of(records.seed_folder(folder, seed), settings, base).done()
    ]
    if not missing:
        narrator.say("draws: done before")
        return
    with narrator.stage(f"{settings.draws} draws per head at the start, and the cost of a replan"):
        for number, _ in pool.each(first_draws.draw_and_time, missing):
            folder, seed, *_ = missing[number]
            narrator.say(f"  {folder.name}, seed {seed}: done")


def _roll(folder: Path, settings: StudySettings, workers: int, narrator: Narrator) -> bool:
    plan = closed_loop.arm_plan(folder.name, settings)
    with narrator.stage(f"closed loop in {folder.name}, {len(plan)} episodes"):
        summary = closed_loop.run_arm(folder, settings, workers=workers, console=narrator.console)
    if summary.stopped:
        raise Stopped("stopped; run the same command again to go on")
    errors = [row for row in read_rows(folder / records.JOURNAL) if row.status == "error"]
    for row in errors[:3]:
        narrator.say(f"error in {row.key.text}:\n{row.traceback}")
    checks.record_checks(folder, closed_loop.repeat_checks(folder, settings))
    return not errors


@contextmanager
def training_bar(narrator: Narrator) -> Iterator[Progress]:
    """Updates done, time left and a text; where a line is too short for all, the bar gives way."""
    whole = Column(no_wrap=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(table_column=whole),
        TextColumn("updates,"),
        TimeRemainingColumn(table_column=whole),
        TextColumn("left"),
        TextColumn("{task.fields[text]}"),
    )
    with LoggedProgress(*columns, console=narrator.console) as bar:
        yield bar


def _names(folders: list[Path]) -> str:
    return " and ".join(folder.name for folder in folders)
