"""How large a study is run: the paper's size, or one of the files in `sizes/`.

A size contains what replaces the paper's values; fields that it leaves out stay as the study and the protocol say.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from typing import Any

from lerobot_policy_quantile.evaluation.plan import parse_numbers
from lerobot_policy_quantile.studies.plans import Evaluation, PlanVariant, StudyPlan
from lerobot_policy_quantile.util.names import nearest

BATCH = 128
"""Global batch size of the paper, for any number of processes."""

_OPTIONS = ("episodes", "sample", "limit")
"""Options of `qhead eval` that a size may set."""


@dataclass(frozen=True)
class StudySize:
    """What a size says about one study."""

    updates: int
    reference: str
    """The full model, to which the other variants are compared."""
    variant: tuple[PlanVariant, ...] = ()
    """Further variants, which the paper's study does not have."""
    seeds: int | None = None
    """None: the size's."""
    pilot: bool = False
    """Its page says what the other studies of the size can tell."""
    suite: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Suite -> options of `qhead eval` in place of the size's."""
    suites: Mapping[str, str] = field(default_factory=dict)
    """Benchmark of the study -> those of its suites that this size evaluates on, as `qhead eval --suite` takes them."""


@dataclass(frozen=True)
class Size:
    """Values that take the place of the paper's; None: the study's, the policy's or the protocol's own."""

    name: str = "paper"
    seeds: int | None = None
    batch: int = BATCH
    updates: int | None = None
    warmup: int | None = None
    trials: int | None = None
    """Of a real robot, per task."""
    backbone: str | None = None
    """None: pi0.5."""
    weights: str | None = None
    """Of the backbone; None: as the user or the backbone's default says."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all variants; a variant's own come after them."""
    dataset: str | None = None
    """Name of the LeRobotDataset; its folder must then be given."""
    collect: bool = False
    """Record two demonstrations where no dataset is given."""
    prefix_cache: bool = False
    """All trainings with a frozen VLM share a folder of prefixes."""
    loader_workers: int | None = None
    lean: bool = False
    """Train with `studies/lean_train.py`: the same samples, read faster."""
    log_every: int | None = None
    """Updates per line of the training log."""
    shared: bool = False
    """Studies in one folder share trainings and journals."""
    parallel: bool = False
    """Trainings run side by side, one per core, unless told otherwise."""
    models: int = 1
    """Policies that a simulator keeps in memory."""
    camera_size: int | None = None
    side_files: bool = True
    evaluation: Mapping[str, int] = field(default_factory=dict)
    """Options of `qhead eval` for every suite."""
    suite: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Suite -> options in their place."""
    evaluation_states: int | None = None
    """Episodes start from the first so many initial states; the others belong to demonstrations."""
    study: Mapping[str, StudySize] = field(default_factory=dict)
    """Study -> its size; empty: every study exists in this size."""

    def __post_init__(self) -> None:
        self._require_options({"evaluation": self.evaluation, **self.suite})
        for study in self.study:
            self._require_options(self._suites_of(study))

    def _require_options(self, suites: Mapping[str, Mapping[str, int]]) -> None:
        most = self.evaluation_states
        for suite, options in suites.items():
            for name in options:
                _require_known(f"options of {suite} in size {self.name!r}", name, _OPTIONS)
            if most is not None and options.get("episodes", 1) > most:
                raise ValueError(
                    f"episodes of {suite} in size {self.name!r} must be at most evaluation_states = {most};"
                    f" got {options['episodes']}"
                )

    def _suites_of(self, study: str) -> dict[str, Mapping[str, int]]:
        """Suite -> options of `qhead eval`, where they are not those of every suite."""
        return {**self.suite, **(self.study[study].suite if study in self.study else {})}

    def options_of(self, study: str, evaluation: Evaluation) -> dict[str, int | str]:
        """Options of `qhead eval` for an evaluation of a study."""
        found: dict[str, int | str] = {**self._suites_of(study).get(evaluation.suite, self.evaluation)}
        if evaluation.indices is not None:
            found.pop("episodes", None)
            found["indices"] = evaluation.indices
        return found

    def indices_of(self, study: str, evaluation: Evaluation) -> tuple[int, ...] | None:
        """Initial states of an evaluation of a study; None: as the benchmark says."""
        if evaluation.indices is not None:
            return parse_numbers("indices", evaluation.indices)
        episodes = self.options_of(study, evaluation).get("episodes")
        return None if episodes is None else tuple(range(int(episodes)))

    def updates_of(self, study: StudyPlan, frames: int) -> int:
        """Updates of one training: this size's, the study's, or one epoch."""
        if study.name in self.study:
            return self.study[study.name].updates
        return self.updates or study.steps or -(-frames // self.batch)

    def applied(self, study: StudyPlan) -> StudyPlan:
        """The study with this size's seeds, warm-up and further variants."""
        if self.study and study.name not in self.study:
            raise ValueError(f"studies of size {self.name!r} are {', '.join(self.study)}; got {study.name!r}")
        mine = self.study.get(study.name)
        return replace(
            study,
            seeds=(mine.seeds if mine else None) or self.seeds or study.seeds,
            warmup=study.warmup if self.warmup is None else self.warmup,
            dataset=self.dataset or study.dataset,
            variants=(*study.variants, *(mine.variant if mine else ())),
            evaluations=tuple(self._of_some_suites(study.name, each) for each in study.evaluations),
        )

    def _of_some_suites(self, study: str, evaluation: Evaluation) -> Evaluation:
        """The evaluation on the suites that this size has of it."""
        fewer = self.study[study].suites if study in self.study else {}
        return replace(evaluation, suite=fewer.get(evaluation.suite, evaluation.suite))

    def record(self, study: StudyPlan) -> dict[str, Any]:
        """What decides the numbers of a study in this size; seeds may be added later."""
        how = (
            "study",
            "seeds",
            "parallel",
            "shared",
            "models",
            "loader_workers",
            "lean",
            "log_every",
            "side_files",
            "prefix_cache",
            "collect",
        )
        found = {name: value for name, value in asdict(self).items() if name not in how}
        if study.name in self.study:
            mine = self.study[study.name]
            found |= {"updates": mine.updates, "suite": self._suites_of(study.name)}
            if mine.suites:
                found["suites"] = mine.suites
        return found


PAPER = Size()


def load_size(name: str) -> Size:
    """A size by the name of its file; `paper` has none."""
    if name == PAPER.name:
        return PAPER
    return parse_size(name, files(__package__).joinpath("sizes", f"{name}.toml").read_text(encoding="utf-8"))


def parse_size(name: str, text: str) -> Size:
    """A size from the text of its file; raises ValueError that names an unknown field."""
    content = tomllib.loads(text)
    known = [each.name for each in fields(Size) if each.name != "name"]
    for entry in content:
        _require_known(f"fields of size {name!r}", entry, known)
    studies = {study: _study_size(name, study, entry) for study, entry in content.pop("study", {}).items()}
    return Size(name=name, study=studies, **content)


def _study_size(size: str, study: str, entry: dict[str, Any]) -> StudySize:
    for name in entry:
        _require_known(f"fields of study {study!r} in size {size!r}", name, [each.name for each in fields(StudySize)])
    variants = tuple(PlanVariant(**each) for each in entry.get("variant", ()))
    return StudySize(**{**entry, "variant": variants})


def _require_known(what: str, name: str, allowed: Any) -> None:
    if name not in allowed:
        raise ValueError(f"{what} must be among {', '.join(allowed)}; got {name!r}{nearest(name, allowed)}")
