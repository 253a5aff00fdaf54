"""Episodes as a moving picture: cameras at the left, the predicted fan over time at the right.

Axes: t control step, h chunk step, k level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from lerobot_policy_quantile.drawing.palette import PALETTE
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.video import encode_video
from lerobot_policy_quantile.explorer.episode_reading import (
    EpisodeRecord,
    dimension_names,
    executed_law,
    read_episode,
)
from lerobot_policy_quantile.explorer.frames import Frames, read_frames
from lerobot_policy_quantile.explorer.run_reading import ExploredRun
from lerobot_policy_quantile.util.files import write_atomically
from lerobot_policy_quantile.util.quantiles import Array, quantile_at

CAMERA, CHART, TITLE, GAP = 184, 400, 26, 8
LABEL = 64
"""Room for a dimension's name."""
BANDS = ((0.025, 0.975, 0.18), (0.1, 0.9, 0.26), (0.25, 0.75, 0.40))
"""Ends of the central 95, 80 and 50 %, and how strongly each is painted over the ones before."""
STRONG = 1.5
"""How much stronger the last replan's fan is painted."""
COLOURS, LONGEST, HELD = 72, 50, 8
"""Of a GIF: colours, most pictures of the episodes, and how many more show their end."""
SHARP = 2
"""Charts are drawn so many times larger and shrunk."""
_KINDS = (".gif", ".mp4")


@dataclass(frozen=True)
class FilmedEpisode:
    """What is drawn of one episode."""

    row: Row
    record: EpisodeRecord
    frames: Frames
    law: Float[Array, "t d k"] | None


def write_film(episodes: Sequence[tuple[ExploredRun, Row]], dimensions: Sequence[int], out: Path) -> int:
    """Write the episodes' film; the number of its pictures. ValueError where there is nothing to draw."""
    if out.suffix not in _KINDS:
        raise ValueError(f"--out must end in {' or '.join(_KINDS)}; got {out.name}")
    if not episodes:
        raise ValueError("--episode must be given at least once; got none")
    filmed = [_filmed(run, row, dimensions) for run, row in episodes]
    longest = max(filmed, key=lambda each: each.frames.steps[-1])
    steps = longest.frames.steps
    if out.suffix == ".gif" and len(steps) > LONGEST:
        steps = [steps[place] for place in np.linspace(0, len(steps) - 1, LONGEST).round().astype(int)]
    pictures = [_moment(filmed, dimensions, step, steps[-1]) for step in steps]
    rate = _rate(longest, len(steps))
    if out.suffix == ".mp4":
        write_atomically(out, encode_video([np.asarray(picture) for picture in pictures], rate))
    else:
        palette = _gif_palette(pictures)
        shown = [*pictures, *[pictures[-1]] * HELD]
        small = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in shown]
        milliseconds = max(20, round(1000 / rate))
        small[0].save(out, save_all=True, append_images=small[1:], duration=milliseconds, loop=0, optimize=True)
    return len(pictures)


def _gif_palette(pictures: Sequence[Image.Image]) -> Image.Image:
    """Colours of some pictures and, however little of a picture they cover, all of the charts'."""
    some = [np.asarray(pictures[place]) for place in np.linspace(0, len(pictures) - 1, 8).round().astype(int)]
    found = Image.fromarray(np.concatenate(some)).quantize(COLOURS).getpalette() or []
    ours = [_mixed(name, 1.0) for name in ("ground", "ink", "grid", "failure", "success")]
    ours += [_mixed("quantile", weight * factor) for _, _, weight in BANDS for factor in (1.0, STRONG)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*found[: 3 * COLOURS], *(part for colour in ours for part in colour)])
    return palette


def _filmed(run: ExploredRun, row: Row, dimensions: Sequence[int]) -> FilmedEpisode:
    record = read_episode(run, row)
    frames, missing = read_frames(run, row, record.query_steps)
    if frames is None or record.actions is None:
        raise ValueError(
            f"episode {row.key.text} must have pictures and actions; {'; '.join(record.problems + missing)}"
        )
    if max(dimensions) >= record.actions.shape[1]:
        raise ValueError(f"--dimensions must lie in 0..{record.actions.shape[1] - 1}; got {max(dimensions)}")
    return FilmedEpisode(row, record, frames, executed_law(record))


def _rate(episode: FilmedEpisode, pictures: int) -> Fraction:
    """Pictures per second at which the robot moves as fast as it did."""
    seconds = max(episode.row.simulated_seconds, 0.1)
    return Fraction(pictures / seconds).limit_denominator(100)


def _moment(filmed: Sequence[FilmedEpisode], dimensions: Sequence[int], step: int, last: int) -> Image.Image:
    """All episodes at a control step, one below the other."""
    cameras = max(each.frames.cameras for each in filmed)
    width, height = cameras * CAMERA + GAP + CHART, TITLE + CAMERA
    sheet = Image.new("RGB", (width, len(filmed) * (height + GAP) - GAP), _shade("ground"))
    for number, episode in enumerate(filmed):
        top = number * (height + GAP)
        _title(sheet, episode, top)
        picture = _picture(episode, step)
        sheet.paste(
            picture.resize((episode.frames.cameras * CAMERA, CAMERA), Image.Resampling.LANCZOS), (0, top + TITLE)
        )
        sheet.paste(_chart(episode, dimensions, step, last), (cameras * CAMERA + GAP, top + TITLE))
    return sheet


def _title(sheet: Image.Image, episode: FilmedEpisode, top: int) -> None:
    key, pen, font = episode.row.key, ImageDraw.Draw(sheet), ImageFont.load_default(15)
    words = f"{key.policy}, {key.decoder}: "
    pen.text((4, top + 4), words, _shade("ink"), font)
    shade = _shade("success" if episode.row.status == "success" else "failure")
    pen.text((4 + pen.textlength(words, font), top + 4), episode.row.status, shade, font)


def _picture(episode: FilmedEpisode, step: int) -> Image.Image:
    place = int(np.searchsorted(episode.frames.steps, step, side="right")) - 1
    return Image.fromarray(episode.frames.pictures[max(place, 0)])


def _chart(episode: FilmedEpisode, dimensions: Sequence[int], step: int, last: int) -> Image.Image:
    """Fans and executed actions up to a step, and all of the fan that was predicted at the last replan."""
    chart = Image.new("RGB", (CHART * SHARP, CAMERA * SHARP), _shade("ground"))
    tall = CAMERA / len(dimensions)
    for number, d in enumerate(dimensions):
        _panel(chart, episode, d, (number * tall + 3, (number + 1) * tall - 3), step, last)
    return chart.resize((CHART, CAMERA), Image.Resampling.LANCZOS)


def _panel(chart: Image.Image, episode: FilmedEpisode, d: int, room: tuple[float, float], step: int, last: int) -> None:
    record = episode.record
    assert record.actions is not None
    top, bottom = room
    pen, font = ImageDraw.Draw(chart), ImageFont.load_default(11 * SHARP)
    low, high = _ends(episode, d)

    def place(times: Array, values: Array) -> list[tuple[float, float]]:
        x = LABEL + np.asarray(times) / max(last, 1) * (CHART - LABEL - 6)
        y = bottom - (np.asarray(values) - low) / (high - low) * (bottom - top)
        return [(float(a) * SHARP, float(b) * SHARP) for a, b in zip(x, y, strict=True) if np.isfinite(a + b)]

    frame = (LABEL * SHARP, top * SHARP, (CHART - 6) * SHARP, bottom * SHARP)
    pen.rectangle(frame, outline=_shade("grid"), width=SHARP)
    middle = (top + bottom) / 2 * SHARP
    pen.text((2 * SHARP, middle), dimension_names(record)[d], _shade("ink"), font, anchor="lm")
    done = min(step, len(record.actions))
    for times, knots, strong in _fans(episode, d, step):
        for first, second, weight in BANDS:
            below, above = (place(times, quantile_at(knots, record.levels, rank)) for rank in (first, second))  # type: ignore[arg-type]
            shade = _mixed("quantile", weight * (STRONG if strong else 1.0))
            if len(below) > 1:
                pen.polygon([*below, *reversed(above)], fill=shade)
    path = place(np.arange(done), record.actions[:done, d])
    if len(path) > 1:
        pen.line(path, fill=_shade("ink"), width=SHARP + 1)
    now = (LABEL + step / max(last, 1) * (CHART - LABEL - 6)) * SHARP
    pen.line([(now, frame[1]), (now, frame[3])], fill=_shade("failure"), width=SHARP)


def _fans(episode: FilmedEpisode, d: int, step: int) -> list[tuple[Array, Array, bool]]:
    """(steps, quantiles, whether it is the last replan's) of the fans that are known at a step."""
    record = episode.record
    if episode.law is None or record.query_steps is None or record.quantiles is None:
        return []
    known = [int(began) for began in record.query_steps if began <= step]
    found: list[tuple[Array, Array, bool]] = []
    for query, began in enumerate(known):
        end = int(record.query_steps[query + 1]) if query + 1 < len(record.query_steps) else len(episode.law)
        strong = query == len(known) - 1
        chunk = record.quantiles[query, :, d]
        count = len(chunk) if strong else min(end - began + 1, len(chunk))
        found.append((np.arange(began, began + count), chunk[:count].astype(float), strong))
    return found


def _ends(episode: FilmedEpisode, d: int) -> tuple[float, float]:
    assert episode.record.actions is not None
    values = [episode.record.actions[:, d]]
    if episode.law is not None:
        values += [episode.law[:, d, 0], episode.law[:, d, -1]]
    flat = np.concatenate(values)
    low, high = float(np.nanmin(flat)), float(np.nanmax(flat))
    room = max(0.06 * (high - low), 1e-4)
    return low - room, high + room


def _shade(name: str) -> str:
    return PALETTE[name][0]


def _mixed(name: str, weight: float) -> tuple[int, int, int]:
    """A colour painted with this weight over the ground."""
    colours = [np.array([int(_shade(which)[i : i + 2], 16) for i in (1, 3, 5)]) for which in (name, "ground")]
    mixed = min(weight, 1.0) * colours[0] + (1 - min(weight, 1.0)) * colours[1]
    return int(mixed[0]), int(mixed[1]), int(mixed[2])
