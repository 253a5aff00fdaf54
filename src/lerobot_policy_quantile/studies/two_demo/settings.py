"""The settings of a study, fixed in a small file before any evaluation episode is run."""

import json
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.core._checks import require_choice
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.scenes.libero.wording import require_wording
from lerobot_policy_quantile.studies.two_demo.paper import OWN
from lerobot_policy_quantile.studies.two_demo.records import HEADS, STUDY, training_seeds
from lerobot_policy_quantile.studies.two_demo.result import is_deterministic
from lerobot_policy_quantile.util.files import write_text
from lerobot_policy_quantile.util.names import nearest
from lerobot_policy_quantile.util.wording import BDDL

OBSTACLE = "+obstacle"
SCENES = {"embedded": "embedded", "libero": "libero_object"}
"""A study's word for a scene -> the scene's name; task 0 of either."""
MEDIAN_REPEATS = 2
"""Median episodes per trained policy: their actions and simulator states must be the same (a check)."""
DEVICES, PROJECTIONS, PROMPTS = ("cpu", "cuda", "mps"), ("inherited", "fresh"), ("base", "new")
OLDER = {"wording": BDDL, "output_projection": "inherited", "prompts": "base", "device": "cpu", "nearby_starts": 0}
"""What folders meant that are older than these fields."""
MAY_GROW = ("scenes", "obstacle", "seeds", "episodes", "nearby_starts", "decoders", "obstacle_decoders")
"""Fields that a folder's study may be given more of; all others stay as they were begun."""


@dataclass(frozen=True)
class StudySettings:
    """Everything that decides the numbers."""

    scenes: tuple[str, ...] = ("embedded",)
    obstacle: tuple[bool, ...] = (False, True)
    seeds: int = 1
    """Number of training seeds: the batch sequence, and what no base gives (with a base: nothing)."""
    first_seed: int = 0
    updates: int = 6000
    learning_rate: float = 5e-4
    """Of the expert."""
    head_learning_rate: float = 1e-3
    prompt_learning_rate: float = 1e-3
    warmup: int = 200
    final_fraction: float = 0.1
    """Of the peak learning rate, at the last update."""
    episodes: int = 10
    """Per stochastic decoder and training seed; a deterministic one runs once."""
    nearby_starts: int = 0
    """Starts a centimetre or so from the demonstrations', from which deterministic decoders run, too: a rate instead of
    one outcome that rounding may decide."""
    first_episode: int = 0
    """Number of the first evaluation episode: other numbers are free for trying things out."""
    draws: int = 1000
    camera_size: int = 96
    limit: int = 400
    obstacle_limit: int = 600
    output_projection: str = "inherited"
    """From which all heads start: the base's, or fresh, as the paper's; drawn from the training seed, alike for all."""
    prompts: str = "base"
    """The base's, where it has as many, or new, as the paper's; drawn in the same way."""
    device: str = "cpu"
    """Where policies compute: cpu, cuda or mps."""
    wording: str = BDDL
    """Which words LIBERO's scenes speak: those the base was pretrained on. The shipped one knows the bddl files'."""
    decoders: tuple[str, ...] = ("native", "independent", "shared", "density", "median")
    """Of the quantile head, in every arm."""
    obstacle_decoders: tuple[str, ...] = ()
    """Of the quantile head, in arms with the obstacle only: the interval sweep and the density variants."""

    def __post_init__(self) -> None:
        for name in ("scenes", "obstacle", "decoders", "obstacle_decoders"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("decoders", "obstacle_decoders"):
            object.__setattr__(self, name, tuple(canonical_text(text) for text in getattr(self, name)))
        require_wording(self.wording)
        for name, choices in (("output_projection", PROJECTIONS), ("prompts", PROMPTS), ("device", DEVICES)):
            require_choice(name, getattr(self, name), choices)
        for scene in self.scenes:
            if scene not in SCENES:
                raise ValueError(f"scenes must be among {', '.join(SCENES)}; got {scene!r}{nearest(scene, SCENES)}")
        for name in ("seeds", "updates", "episodes", "draws", "camera_size", "limit", "obstacle_limit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("first_seed", "first_episode", "nearby_starts"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}")
        for name in ("learning_rate", "head_learning_rate", "prompt_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}")
        if not 0 <= self.final_fraction <= 1:
            raise ValueError(f"final_fraction must lie in [0, 1]; got {self.final_fraction}")
        if "median" not in self.decoders:
            raise ValueError(f"decoders must hold median, whose repeats are compared; got {', '.join(self.decoders)}")

    @property
    def training_seeds(self) -> range:
        """The training seeds."""
        return training_seeds(asdict(self))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms' names, as the journal spells scenes."""
        return tuple(
            SCENES[scene] + (OBSTACLE if obstacle else "") for scene in self.scenes for obstacle in self.obstacle
        )

    def arm_limit(self, arm: str) -> int:
        """Actions per episode."""
        return self.obstacle_limit if arm.endswith(OBSTACLE) else self.limit

    def arm_decoders(self, arm: str) -> list[tuple[str, str]]:
        """(head, decoder) pairs of an arm in the order of the table; heads without decoders come last."""
        texts = [*self.decoders, *(self.obstacle_decoders if arm.endswith(OBSTACLE) else ())]
        return [("quantile", text) for text in dict.fromkeys(texts)] + [(head, OWN) for head in HEADS[1:]]

    def arm_episodes(self, head: str, decoder: str) -> range:
        """Numbers of the episodes of a (head, decoder) pair."""
        if (head, decoder) == ("quantile", "median"):
            count = MEDIAN_REPEATS
        elif is_deterministic(head, decoder):
            count = 1
        else:
            count = self.episodes
        return range(self.first_episode, self.first_episode + count)

    def arm_starts(self, head: str, decoder: str) -> range:
        """Numbers of the nearby starts of a (head, decoder) pair; 0 is the demonstrations'."""
        return range(1, 1 + self.nearby_starts * is_deterministic(head, decoder))

    def record(self, base: str) -> dict[str, Any]:
        """What goes into study.json."""
        pairs = [pair for arm in self.arms for pair in self.arm_decoders(arm)]
        return asdict(self) | {"base": base, "arms": self.arms, "decoders": list(dict.fromkeys(pairs))}


def load_settings(source: str) -> StudySettings:
    """Settings by name (`demo`, `study`, `paper`: files in this folder) or from a TOML file."""
    shipped = resources.files(__package__).joinpath(f"{source}.toml")
    if not shipped.is_file() and not Path(source).is_file():
        hint = nearest(source, ("demo", "study", "paper"))
        raise ValueError(f"settings must be demo, study, paper or a TOML file; got {source!r}{hint}")
    text = shipped.read_text() if shipped.is_file() else Path(source).read_text()
    found = tomllib.loads(text)
    known = [field.name for field in fields(StudySettings)]
    for name in found:
        if name not in known:
            raise ValueError(f"settings {source} may hold {', '.join(known)}; got {name!r}{nearest(name, known)}")
    return StudySettings(**found)


def changed(settings: StudySettings, **given: Any) -> StudySettings:
    """The settings with what the command line gave; None leaves a field as it is."""
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def fix_settings(out: Path, settings: StudySettings, base: str) -> None:
    """Write study.json before anything is run; refuse a folder that was begun with other settings."""
    path, wanted = out / STUDY, json.loads(json.dumps(settings.record(base)))
    if path.is_file():
        begun = OLDER | json.loads(path.read_text())
        moved = [
            f"{name} was {begun.get(name)!r}, now {wanted[name]!r}"
            for name in wanted
            if name not in (*MAY_GROW, "arms") and begun.get(name) != wanted[name]
        ]
        if moved:
            raise ValueError(f"--out {out} was begun with other settings ({'; '.join(moved)}); use another folder")
        wanted["arms"] = list(dict.fromkeys([*begun["arms"], *wanted["arms"]]))
        wanted["seeds"] = max(begun["seeds"], wanted["seeds"])
        wanted["decoders"] = [list(p) for p in dict.fromkeys(map(tuple, [*begun["decoders"], *wanted["decoders"]]))]
    out.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(wanted, indent=2) + "\n")
