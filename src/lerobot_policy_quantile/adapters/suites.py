"""The benchmarks as lists of tasks, and the plans made from them. Like `factory.py`, it joins scenes and closed loop.

How an instance becomes an episode key, for good. LIBERO and LIBERO-Pro: scene of the suite, task 0 to 9 in hf-libero's
order; episode n starts from initial state n modulo the number stored, with seed + n divided by that number.
LIBERO-Plus: scene of the suite, task = upstream's id - 1, index 0, the seed itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.benchmarks import (
    CATEGORIES,
    CONTROLS,
    EPISODES,
    PERTURBATIONS,
    PLUS,
    PRO,
    SUITES,
    plus_scene,
    pro_scene,
)
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.util.names import nearest

_PRO_KINDS = (*CONTROLS, *PERTURBATIONS)
GROUPS = {
    "libero": tuple(SUITES),
    PLUS: tuple(map(plus_scene, SUITES)),
    PRO: tuple(pro_scene(suite, kind) for suite in SUITES for kind in _PRO_KINDS),
}
"""What --suite may name at once; each of the scenes can be named by itself, too."""


@dataclass(frozen=True)
class SuiteEntry:
    """One task of a benchmark."""

    scene: str
    task: int
    name: str
    category: str | None
    states: int
    """Stored initial states; 0 if it cannot be run."""
    reason: str | None
    """Why it cannot be run here."""


def parse_suites(text: str) -> list[str]:
    """The scenes in a text such as `libero_spatial,libero_10` or `libero_plus`."""
    scenes: list[str] = []
    known = [*GROUPS, *(scene for group in GROUPS.values() for scene in group)]
    for name in (part.strip() for part in text.split(",")):
        if name not in known:
            raise ValueError(
                f"--suite must name some of {', '.join(GROUPS)}, {', '.join(SUITES)} or a scene of theirs such as"
                f" {plus_scene('libero_10')} or {pro_scene('libero_10', 'task')}; got {name!r}{nearest(name, known)}"
            )
        scenes += GROUPS.get(name, (name,))
    return list(dict.fromkeys(scenes))


def parse_categories(names: Sequence[str]) -> list[str]:
    """LIBERO-Plus categories by their full names or the tables' headings, in any case."""
    headings = {heading.rstrip(".").lower(): name for name, heading in CATEGORIES.items()}
    headings |= {name.lower(): name for name in CATEGORIES} | {"language": "Language Instructions"}
    headings |= {"background": "Background Textures"}
    for name in names:
        if name.lower() not in headings:
            raise ValueError(
                f"--category must be one of {', '.join(headings)}; got {name!r}{nearest(name.lower(), headings)}"
            )
    return [headings[name.lower()] for name in names]


def entries_of(scene: str) -> list[SuiteEntry]:
    """The tasks of one scene, those that cannot be run included."""
    from lerobot_policy_quantile.scenes.contract import make_scene
    from lerobot_policy_quantile.scenes.libero.plus_instances import instances, why_unavailable
    from lerobot_policy_quantile.scenes.libero.pro import ProScene

    if scene.startswith(PLUS):
        return [
            SuiteEntry(scene, i.number, i.name, i.category, 0 if (reason := why_unavailable(i)) else 1, reason)
            for i in instances(scene.replace(PLUS, "libero"))
        ]
    world = make_scene(scene, camera_size=1)
    reasons = [world.why_unavailable(task) if isinstance(world, ProScene) else None for task in range(world.task_count)]
    return [
        SuiteEntry(scene, task, str(entry.name), None, 0 if reasons[task] else world.state_count(task), reasons[task])
        for task, entry in enumerate(world.tasks)  # type: ignore[attr-defined]
    ]


def is_for_training(entry: SuiteEntry) -> bool:
    """Whether a LIBERO-Plus instance belongs to demonstrations."""
    from lerobot_policy_quantile.scenes.libero.plus_split import for_training

    return entry.scene.startswith(PLUS) and for_training(entry.scene, entry.task)


def episodes_of(
    entry: SuiteEntry, count: int, seed: int, indices: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Index and seed of a task's episodes; with `indices`, once from each of these initial states."""
    if entry.states == 0:
        return []
    if indices is not None:
        if entry.category is not None or max(indices) >= entry.states:
            raise ValueError(
                f"--indices must lie in 0..{entry.states - 1}, the stored initial states of {entry.scene} task"
                f" {entry.task}; got {', '.join(map(str, indices))}"
            )
        return [(index, seed) for index in indices]
    wanted = 1 if entry.category is not None else count
    return [(n % entry.states, seed + n // entry.states) for n in range(wanted)]


def keys_of(
    entries: Sequence[SuiteEntry],
    lines: Sequence[tuple[str, str]],
    *,
    count: int,
    seed: int = 0,
    indices: Sequence[int] | None = None,
) -> list[EpisodeKey]:
    """Every episode of the entries for every (policy, decoder), episode by episode."""
    return [
        EpisodeKey(entry.scene, entry.task, index, episode_seed, policy, decoder)
        for entry in entries
        for index, episode_seed in episodes_of(entry, count, seed, indices)
        for policy, decoder in lines
    ]


def facts_of(entries: Sequence[SuiteEntry], count: int) -> Facts:
    """What a table must know of the benchmark besides its rows. Plus runs each instance once."""
    population: dict[str, int] = {}
    categories: dict[str, dict[int, str]] = {}
    unavailable: dict[str, dict[int, str]] = {}
    for entry in entries:
        population[entry.scene] = population.get(entry.scene, 0) + (1 if entry.category is not None else count)
        if entry.category is not None:
            categories.setdefault(entry.scene, {})[entry.task] = entry.category
        if entry.reason is not None:
            unavailable.setdefault(entry.scene, {})[entry.task] = entry.reason
    return Facts(population, categories, unavailable)


def default_episodes(protocol: str) -> int:
    """Episodes per task unless told otherwise."""
    return EPISODES[protocol]


def summary_lines(entries: Sequence[SuiteEntry]) -> list[str]:
    """Counts by scene and by category, and why tasks cannot be run."""
    what = "instances" if all(entry.category is not None for entry in entries) else "tasks"
    available = sum(entry.reason is None for entry in entries)
    lines = [f"{len(entries)} {what}, {available} can be run here"]
    for heading, groups in (
        ("by scene", [entry.scene for entry in entries]),
        ("by category", [entry.category for entry in entries]),
    ):
        names = [name for name in dict.fromkeys(groups) if name is not None]
        if names:
            lines.append(heading)
        for name in names:
            members = [entry for entry, group in zip(entries, groups, strict=True) if group == name]
            lines.append(f"  {name}: {len(members)}, {sum(e.reason is None for e in members)} can be run here")
    facts = facts_of(entries, 1)
    reasons = facts.reasons(facts.unavailable)
    if reasons:
        lines.append("cannot be run")
    for reason, number in reasons.items():
        named = [e for e in entries if e.reason == reason]
        spelled = "" if number > 10 else ": " + ", ".join(f"{e.scene} task {e.task} ({e.name})" for e in named)
        lines.append(f"  {number}: {reason}{spelled}")
    return lines
