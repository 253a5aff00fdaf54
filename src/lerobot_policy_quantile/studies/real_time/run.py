"""Runs the study's episodes: every handover at every delay, an obstacle to be passed, an object that is pushed.

All episodes are keyed, paired by their noise and kept in one journal per part: a stopped run goes on where it was.
Whole cells are also kept in a small file, which lasts longer than journals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rich.console import Console

from lerobot_policy_quantile.adapters.factory import OBSTACLE, SceneFactory
from lerobot_policy_quantile.adapters.real_time_policy import head_of, real_time_arms
from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.contract import OWN_DECODER, Policy, World
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.evaluation.journal import Row, read_rows
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.whole_run import JOURNAL, SIDE, run_whole
from lerobot_policy_quantile.scenes.embedded import EmbeddedScene
from lerobot_policy_quantile.studies.real_time.cells import Cell, CellFile, CellName, Start, cells_of
from lerobot_policy_quantile.studies.real_time.cost import DELAY
from lerobot_policy_quantile.studies.real_time.measures import (
    PushReport,
    SeamReport,
    Watched,
    changed_side,
    push_report,
    seam_report,
)
from lerobot_policy_quantile.studies.real_time.policies import SUITE
from lerobot_policy_quantile.studies.real_time.push import PushedScene
from lerobot_policy_quantile.studies.two_demo.closed_loop import SameStart

PUSHED = "+push"
WINDOWED = "shared(l=0.4, rho=0.7)"
"""Shared ranks in the interval that is best in the paper's sampling study (Sec. 4.4)."""
CAMERA_SIZE = VARIANTS["tiny"].image_size
Handovers = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Head -> decoder -> handovers."""
HANDOVERS: Handovers = {
    "quantile": {"median": ("swap", "rank", "pause", "ensemble"), WINDOWED: ("swap", "rank")},
    "flow": {OWN_DECODER: ("swap", "rtc")},
}
FINE_TUNED_HANDOVERS: Handovers = {
    "quantile": {"median": ("swap", "rank")},
    "l1": {OWN_DECODER: ("swap",)},
    "flow": {OWN_DECODER: ("swap", "rtc")},
}
"""Of fine-tuned heads."""
JUDGED = (0, DELAY)
"""Delays at which swapping is run with other decoders and heads than the median, for targets to be held against."""
TASKS = {"embedded": (1, 2, 3, 4)}
"""Of other scenes the ten of a LIBERO suite."""
FIRST_STATE = {"embedded": 0, SUITE: 20}
"""Of the ten in LIBERO none is among the states of the heads' demonstrations."""
REPLAN = "fixed:5"
"""Half a chunk; `base` by itself asks every three steps, which costs half as much again."""
PATIENCE = 6000.0
"""Seconds of wall time for one episode; the machine may be busy."""


@dataclass(frozen=True)
class JoiningFactory:
    """Scenes of the registry, pushed ones and those with one shared start; policies whose answers take time."""

    scenes: SceneFactory

    def world(self, scene: str) -> World:
        """A world of that name."""
        made = self.scenes.scene(scene.removesuffix(PUSHED))
        if scene.endswith(PUSHED):
            return cast(World, PushedScene(cast(EmbeddedScene, made)))
        return cast(World, SameStart(made)) if scene.endswith(OBSTACLE) else made

    def policy(self, policy: str) -> Policy:
        """The policy of that name."""
        return self.scenes.policy(policy)

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """Its context, told without loading it."""
        return self.scenes.policy_context(policy)


@dataclass(frozen=True)
class JoiningStudy:
    """Where the study keeps its journals, and how much of it is run."""

    out: Path
    episodes: int
    delays: Sequence[int]
    workers: int
    notes: Console

    def delays_in(
        self,
        scene: str,
        policies: Mapping[str, str],
        kept: CellFile,
        handed: Handovers = HANDOVERS,
        part: str | None = None,
    ) -> None:
        """Every policy, decoder, handover and delay in a scene, on the same episodes; what is kept is not run again.

        One decoder of one policy after the other, all its cells from the same start back to back. `part`: folder of the
        journal; None: the scene's.
        """
        for name, folder in policies.items():
            for decoder, handovers in handed[head_of(Path(folder)) or ""].items():
                text = decoder if decoder == OWN_DECODER else canonical_text(decoder)
                cells = [
                    CellName(name, text, handover, delay)
                    for handover in handovers
                    for delay in self.delays
                    if (delay or handover != "pause")  # without a delay pausing is swapping
                    and (delay in JUDGED or handover != "swap" or decoder == "median")
                ]
                self._run_cells(part or scene, scene, {name: folder}, cells, kept)

    def _run_cells(
        self, part: str, scene: str, policies: Mapping[str, str], cells: Sequence[CellName], kept: CellFile
    ) -> None:
        handovers = list(dict.fromkeys(cell.handover for cell in cells))
        factory, starts = self._factory(policies, handovers, self.delays), self._starts(scene)
        missing = [cell for cell in cells if not kept.have(cell, *_weights_and_fade(factory, cell.arm), starts)]
        if not missing:
            return
        keys = [
            EpisodeKey(scene, task, index, seed, cell.arm, cell.decoder)
            for task, index, seed in starts
            for cell in missing
        ]
        try:
            self._run(part, keys, factory)
        finally:  # of a stopped run the cells that are whole
            kept.add(cell for cell in self._finished(part) if cell.name in missing and cell.starts == starts)

    def _starts(self, scene: str) -> tuple[Start, ...]:
        tasks = TASKS.get(scene, tuple(range(10)))
        first, each = FIRST_STATE[scene], math.ceil(self.episodes / len(tasks))
        return tuple((task, index, 0) for task in tasks for index in range(first, first + each))

    def _finished(self, part: str) -> list[Cell]:
        folder = self.out / part
        rows = read_rows(folder / JOURNAL) if (folder / JOURNAL).is_file() else []
        return cells_of(rows, SideFiles(folder / SIDE))

    def seams(self, part: str, delay: int) -> SeamReport | None:
        """Of the part's journal: seams of rank handover under the median; None where it has no such episodes."""
        folder = self.out / part
        rows = read_rows(folder / JOURNAL) if (folder / JOURNAL).is_file() else []
        mine = [row for row in rows if row.key.decoder == "median" and row.key.policy.endswith(f"/rank-{delay}")]
        files = SideFiles(folder / SIDE)
        found = [files.read(row.key) for row in mine if files.path(row.key).is_file()]
        return seam_report(found, delay, found[0]["quantiles"].shape[-1] // 2) if found else None

    def sides(self, policies: Mapping[str, str], delay: int) -> dict[str, tuple[int, int, int]]:
        """Policy and handover -> episodes that changed sides before the obstacle, that passed it, and all."""
        factory = self._factory(policies, ("swap", "rank"), [delay])
        scene = f"embedded{OBSTACLE}"
        keys = [
            EpisodeKey(scene, 0, 0, seed, policy, canonical_text("shared"))
            for seed in range(self.episodes)
            for policy in factory.scenes.sources
        ]
        rows, files = self._run("obstacle", keys, factory)
        world = factory.scenes.scene(scene)
        world.reset(0, 0, 0)
        layout, start = world.layout(), world.state()[:3]
        world.close()
        if layout.obstacle is None:
            raise ValueError(f"{scene} must have an obstacle; got none")
        ahead = (layout.object - start)[:2]
        counts = {}
        for policy in factory.scenes.sources:
            paths = [files.read(row.key)["states"][:, :3] for row in rows if row.key.policy == policy]
            changed = [changed_side(path, layout.obstacle, ahead / math.hypot(*ahead)) for path in paths]
            counts[policy] = (sum(map(bool, changed)), sum(side is not None for side in changed), len(paths))
        return counts

    def pushes(self, policies: Mapping[str, str], delay: int) -> dict[str, PushReport]:
        """Policy -> how its surprise tells episodes whose object was pushed from the same ones undisturbed."""
        factory = self._factory(policies, ("rank",), [delay])
        keys = [
            EpisodeKey(scene, *start, policy, "median")
            for policy in factory.scenes.sources
            for scene in ("embedded", f"embedded{PUSHED}")
            for start in self._starts("embedded")
        ]
        rows, files = self._run("pushes", keys, factory)
        reports = {}
        for policy in factory.scenes.sources:
            calm, pushed = (
                [files.read(row.key) for row in rows if (row.key.scene, row.key.policy) == (scene, policy)]
                for scene in ("embedded", f"embedded{PUSHED}")
            )
            watched = [[Watched(a["query_steps"], a["surprises"]) for a in side] for side in (pushed, calm)]
            steps = [int(arrays["pushed_at"]) for arrays in pushed]
            reports[policy] = push_report(list(zip(steps, watched[0], strict=True)), watched[1])
        return reports

    def _factory(self, policies: Mapping[str, str], handovers: Sequence[str], delays: Sequence[int]) -> JoiningFactory:
        arms = real_time_arms(policies, ",".join(map(str, delays)), ",".join(handovers), REPLAN)
        sources = {name: source for name, (source, _) in arms.items()}
        rules = {name: rule for name, (_, rule) in arms.items()}
        return JoiningFactory(SceneFactory(sources, CAMERA_SIZE, replan=REPLAN, real_time=rules))

    def _run(self, part: str, keys: Sequence[EpisodeKey], factory: JoiningFactory) -> tuple[list[Row], SideFiles]:
        folder = self.out / part
        rows = run_whole(
            Plan(tuple(keys)),
            folder,
            factory,
            workers=self.workers,
            console=self.notes,
            timeout=PATIENCE,
            models=len(factory.scenes.sources),
        )
        return rows, SideFiles(folder / SIDE)


def _weights_and_fade(factory: JoiningFactory, arm: str) -> tuple[str, str]:
    """Digest of the policy behind an arm, and the weights of its handover, as journals have them."""
    context = factory.policy_context(arm)
    if context is None:
        raise ValueError(f"policy {arm} must be a folder; got a server that does not answer")
    return context["policy"], context.get("fade", "")
