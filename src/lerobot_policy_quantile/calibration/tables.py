"""The tables that `qhead calibrate` prints, from its record."""

from collections.abc import Mapping
from typing import Any

from lerobot_policy_quantile.calibration.baselines import BASELINES
from lerobot_policy_quantile.util.tables import aligned

NONE = "-"
WIDTH_MASS = 0.8
"""Mass of the interval whose width is printed."""


def text_tables(record: Mapping[str, Any]) -> str:
    """Scores, calibration, and both per dimension, for a terminal."""
    episodes, frames = len(record["episodes"]), record["frames"]
    parts = [
        f"{frames} frames of {episodes} held-out episode{'s' if episodes > 1 else ''} of {record['dataset']}; 95 %"
        " intervals by bootstrap over episodes; normalised action units",
        aligned(score_lines(record), left=1),
        aligned(calibration_lines(record), left=1),
        *(aligned(lines, left=2) for lines in [bounds_lines(record)] if len(lines) > 1),
        aligned(dimension_lines(record), left=2),
        *(f"note: {note}" for note in record["notes"]),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def law_name(law: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Such as `ours, 10 samples`; baselines alone where all policies share them."""
    shared = sum(other["baseline"] for other in record["laws"]) == len(BASELINES)
    return str(law["law"]) if law["baseline"] and shared else f"{law['policy']}, {law['law']}"


def score_lines(record: Mapping[str, Any]) -> list[list[str]]:
    """CRPS, skill and cost of every law."""
    lines = [["law", "expert passes", "CRPS", "95 % interval", *(f"skill / {name}" for name in BASELINES)]]
    for law in record["laws"]:
        skills = [with_interval(law["skill"][name], "{:+.2f}") for name in BASELINES]
        passes = NONE if law["baseline"] else str(law["expert_passes"])
        low_high = interval(law["crps"], "{:.4f}") or NONE
        lines.append([law_name(law, record), passes, f"{law['crps']['value']:.4f}", low_high, *skills])
    return lines


def calibration_lines(record: Mapping[str, Any]) -> list[list[str]]:
    """Shares inside the central intervals, in per cent, and a width beside them."""
    masses = next(([i["mass"] for i in law["intervals"]] for law in record["laws"] if "intervals" in law), [])
    lines = [["share inside the interval of", *(f"{100 * mass:g} %" for mass in masses), "width of 80 %"]]
    for law in record["laws"]:
        if "intervals" not in law:
            lines.append([law_name(law, record), *[NONE] * (len(masses) + 1)])
            continue
        shares = [with_interval(i["coverage"], "{:.1f}", 100) for i in law["intervals"]]
        width = next(i for i in law["intervals"] if i["mass"] == WIDTH_MASS)["width"]["value"]
        lines.append([law_name(law, record), *shares, f"{width:.3f}"])
    return lines


def bounds_lines(record: Mapping[str, Any]) -> list[list[str]]:
    """Shares inside the predicted intervals and inside the conformal bounds made of them, with both widths."""
    lines = [["conformal bounds", "mass", "inside before", "inside", "width before", "width"]]
    for law in record["laws"]:
        for each in law.get("conformal", ()):
            shares = [with_interval(each[name], "{:.1f}", 100) for name in ("coverage_before", "coverage")]
            widths = [f"{each[name]['value']:.3f}" for name in ("width_before", "width")]
            lines.append([law_name(law, record), f"{100 * each['mass']:g} %", *shares, *widths])
    return lines


def dimension_lines(record: Mapping[str, Any]) -> list[list[str]]:
    """CRPS, coverage and width of every law but baselines in every dimension."""
    lines = [["law", "dimension", "CRPS", "inside 80 %", "width of 80 %", "in robot units"]]
    for law in record["laws"]:
        if law["baseline"]:
            continue
        middle = next((i for i in law.get("intervals", ()) if i["mass"] == WIDTH_MASS), None)
        for d, name in enumerate(record["dimensions"]):
            cells = [NONE] * 3
            if middle is not None:
                cells = [
                    f"{100 * middle['coverage']['by_dimension']['value'][d]:.1f}",
                    f"{middle['width']['by_dimension']['value'][d]:.3f}",
                    f"{middle['width_in_robot_units'][d]:.4g}",
                ]
            lines.append([law_name(law, record), name, f"{law['crps']['by_dimension']['value'][d]:.4f}", *cells])
    return lines


def interval(estimate: Mapping[str, Any], shape: str, times: float = 1.0) -> str:
    """Such as `0.12 to 0.15`; nothing where there is none."""
    if estimate["low"] is None:
        return ""
    return f"{shape.format(times * estimate['low'])} to {shape.format(times * estimate['high'])}"


def with_interval(estimate: Mapping[str, Any], shape: str, times: float = 1.0) -> str:
    """Such as `0.13 (0.12 to 0.15)`."""
    if estimate["value"] is None:
        return NONE
    ends = interval(estimate, shape, times)
    return shape.format(times * estimate["value"]) + (f" ({ends})" if ends else "")
