"""A two-demonstration study as a page: `report.html`, which needs no other file, and `report.md` with its figures."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lerobot_policy_quantile.drawing.figure import Figure, Picture
from lerobot_policy_quantile.drawing.palette import style_sheet
from lerobot_policy_quantile.studies.two_demo.records import Arm, Cost, Study
from lerobot_policy_quantile.studies.two_demo.report import findings
from lerobot_policy_quantile.studies.two_demo.report.closed_loop import (
    first_actions_figure,
    intervals_figure,
    paths_figure,
    results_of,
    setting_name,
)
from lerobot_policy_quantile.studies.two_demo.report.demonstrations import demonstration_figure
from lerobot_policy_quantile.studies.two_demo.report.distributions import histograms_figure, spread_figure
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS, decoder_name
from lerobot_policy_quantile.studies.two_demo.report.pictures import demonstration_shots, films, separation
from lerobot_policy_quantile.studies.two_demo.report.rates import Rates, rates_figure
from lerobot_policy_quantile.studies.two_demo.report.training import cost_figure, curves_figure, mean_costs
from lerobot_policy_quantile.studies.two_demo.result import Result
from lerobot_policy_quantile.util.files import write_text

HTML, MARKDOWN, FIGURES = "report.html", "report.md", "report_figures"

STAGES = ("demonstrations", "cache", "training", "closed loop")

Context = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """A finished page and what belongs beside its Markdown."""

    html: str
    markdown: str
    files: Mapping[str, bytes]

    def write(self, folder: Path) -> Path:
        """Write all of it into a folder, over what an earlier report left there; returns the HTML file."""
        folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{FIGURES}-", dir=folder))
        fresh.chmod(0o755)
        for name, content in self.files.items():
            (fresh / name).write_bytes(content)
        shutil.rmtree(folder / FIGURES, ignore_errors=True)
        fresh.replace(folder / FIGURES)
        for name, text in ((MARKDOWN, self.markdown), (HTML, self.html)):
            write_text(folder / name, text)
        return folder / HTML


def make_report(study: Study, notes: Sequence[str] = (), version: str = "") -> Report:
    """The report of a study as far as it has come. `notes` are said where the study's circumstances are."""
    context = _context(study, notes, version)
    environment = Environment(
        loader=PackageLoader("lerobot_policy_quantile.studies.two_demo.report"),
        undefined=StrictUndefined,
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = Markup
    environment.globals["decoder_name"] = decoder_name
    html = environment.get_template("study.html.j2").render(**context, colours=Markup(style_sheet()))
    markdown = environment.get_template("study.md.j2").render(**context, figures=FIGURES)
    files: dict[str, bytes] = {f"{figure.name}.svg": figure.svg_file().encode() for figure in _figures(context)}
    files |= {picture.file_name: picture.content for picture in _pictures(context)}
    return Report(html, markdown, files)


def _context(study: Study, notes: Sequence[str], version: str) -> Context:
    scenes: dict[str, list[Arm]] = {}
    for arm in study.arms:
        scenes.setdefault(arm.name.removesuffix("+obstacle"), []).append(arm)
    return {
        "name": str(study.settings.get("name", study.out.name)),
        "version": version,
        "cards": findings.cards(study),
        "summary": findings.summary(study),
        "missing": findings.missing(study),
        "claims": findings.claims(study),
        "enough_policies": findings.ENOUGH_POLICIES,
        "differences": findings.differences(study),
        "circumstances": [*findings.circumstances(study), *notes],
        "scenes": [_scene(name, arms, study) for name, arms in scenes.items()],
        "arms": [_arm(arm, study) for arm in study.arms],
        "films": films(study.arms),
        "settings": flattened(study.settings),
        "decoders": list(dict.fromkeys((r.head, r.decoder) for arm in study.arms for r in results_of(arm))),
    }


def _scene(name: str, arms: Sequence[Arm], study: Study) -> Context:
    """What the arms of one scene are shown together in."""
    longest_first = sorted(arms, key=lambda arm: -len(arm.results()))
    pairs = dict.fromkeys((r.head, r.decoder) for arm in longest_first for r in results_of(arm))
    columns = [{(r.head, r.decoder): r for r in arm.results()} for arm in arms]
    asked = [findings.asked_for(arm, study) for arm in arms]
    costs = mean_costs(arms)
    settings = [f"{'With' if arm.obstacle else 'Without'} obstacle" for arm in arms]
    rates = [Rates(words, results_of(arm)) for words, arm in zip(settings, arms, strict=True) if arm.results()]
    return {
        "name": name,
        "settings": settings,
        "rates": rates_figure(name, f"Success per decoder, {name}", rates) if pairs else None,
        "rows": [
            {
                "head": head,
                "name": decoder_name(head, decoder),
                "decoder": decoder,
                "cells": [
                    _cell(column.get((head, decoder)), (head, decoder) in wanted)
                    for column, wanted in zip(columns, asked, strict=True)
                ],
            }
            for head, decoder in pairs
        ],
        "curves": curves_figure(name, arms),
        "training_rows": _training_rows(arms),
        "cost": cost_figure(name, costs),
        "cost_rows": cost_rows(costs),
    }


def _cell(result: Result | None, wanted: bool) -> Context:
    if result is None or not (result.episodes or result.errors):
        return {"count": "none yet" if wanted else "", "rate": "", "interval": "", "sides": "", "paper": ""}
    return {
        "count": f"{result.success}/{result.episodes}" + (f" ({result.errors} errors)" if result.errors else ""),
        "rate": f"{result.rate:.0f} %" if result.episodes else "",
        "interval": result.interval_words if result.episodes else "",
        "sides": f"{result.left} / {result.right}" if result.success else "",
        "paper": "" if result.paper is None else f"{result.paper:g} %",
    }


def _training_rows(arms: Sequence[Arm]) -> list[list[str]]:
    return [
        [
            setting_name(arm),
            str(seed),
            HEADS.get(head, head),
            f"{int(curve.updates[-1]):,}" if len(curve.updates) else "0",
            f"{curve.losses[-1]:.3g}" if len(curve.losses) else "",
            f"{curve.seconds:.0f} s",
        ]
        for arm in arms
        for seed, curves in arm.curves.items()
        for head, curve in sorted(curves.items(), key=lambda pair: list(HEADS).index(pair[0]))
    ]


def cost_rows(costs: Sequence[Cost]) -> list[list[str]]:
    """Head, expert passes, milliseconds of prefix, expert, head with decoder, and all, and how flow's compare."""
    flow = next((cost for cost in costs if cost.head == "flow"), None)
    return [
        [
            HEADS.get(cost.head, cost.head),
            str(cost.expert_passes),
            f"{cost.prefix_ms:.2f}",
            f"{cost.expert_ms:.2f}",
            f"{cost.total_ms - cost.prefix_ms - cost.expert_ms:.2f}",
            f"{cost.total_ms:.2f}",
            f"{flow.expert_ms / cost.expert_ms:.1f}x" if flow and cost.expert_ms > 0 else "",
            f"{flow.total_ms / cost.total_ms:.1f}x" if flow and cost.total_ms > 0 else "",
            str(cost.repeats),
        ]
        for cost in costs
    ]


def _arm(arm: Arm, study: Study) -> Context:
    return {
        "name": setting_name(arm),
        "instruction": arm.instruction,
        "limit": arm.limit,
        "demonstrations": demonstration_shots(arm),
        "demonstration_figure": demonstration_figure(arm),
        "separation": separation(arm.demonstrations, arm.places),
        "control": None
        if arm.control is None
        else f"Straight control: {'success' if arm.control.success else 'no success'},"
        f" {arm.control.contacts} steps with contact. It is not trained on.",
        "paths": paths_figure(arm),
        "first_actions": first_actions_figure(arm, study.arms),
        "heads": histograms_figure(arm),
        "intervals": intervals_figure(arm, study.arms),
        "spread": spread_figure(arm),
        "checks": sorted(arm.checks, key=lambda check: STAGES.index(check.stage) if check.stage in STAGES else 9),
        "versions": sorted(arm.versions.items()),
    }


def flattened(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines of name and value."""
    lines: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            lines += flattened(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            parts = [" ".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for v in value]
            lines.append((f"{prefix}{name}", "; ".join(parts)))
        else:
            lines.append((f"{prefix}{name}", "none" if value is None else str(value)))
    return lines


def _figures(context: Context) -> list[Figure]:
    parts = [part for group in ("scenes", "arms") for part in context[group]]
    return [value for part in parts for value in part.values() if isinstance(value, Figure)]


def _pictures(context: Context) -> list[Picture]:
    shots = [shot.picture for arm in context["arms"] for demo in arm["demonstrations"] for shot in demo.shots]
    frames = [picture for film in context["films"] for picture in (*film.frames, *([film.video] if film.video else ()))]
    return [*shots, *frames]
