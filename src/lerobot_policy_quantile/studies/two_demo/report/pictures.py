"""What the cameras saw: moments of the demonstrations, film strips and videos of a few episodes."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from lerobot_policy_quantile.drawing.figure import Picture
from lerobot_policy_quantile.studies.two_demo.records import Arm, DemonstrationRecord, Places, RolloutRecord
from lerobot_policy_quantile.studies.two_demo.report.closed_loop import on_the_table, setting_name
from lerobot_policy_quantile.studies.two_demo.report.names import decoder_name

Array = np.ndarray[Any, Any]

MOMENTS = 6
"""Frames of a film strip that are shown."""
VIDEO_BYTES = 1_000_000
"""All videos of a page together; what is beyond stays beside it, in the study's folder."""
QUALITY = 82


@dataclass(frozen=True)
class Shot:
    """One picture and the words below it."""

    picture: Picture
    label: str


@dataclass(frozen=True)
class DemonstrationShots:
    """Moments of one demonstration."""

    route: str
    facts: str
    shots: list[Shot]


@dataclass(frozen=True)
class Film:
    """One episode as a few frames and, where there is one, a video."""

    title: str
    outcome: str
    facts: str
    frames: list[Picture]
    video: Picture | None
    poster: Picture
    """What the video shows before it runs: both cameras at the start."""


def jpeg(name: str, pixels: UInt8[Array, "y x 3"], alt: str) -> Picture:
    """A camera's frame as a small picture."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "jpeg", quality=QUALITY)
    return Picture(name, "image/jpeg", buffer.getvalue(), alt)


def demonstration_shots(arm: Arm) -> list[DemonstrationShots]:
    """Start, widest point, grasp and end of each demonstration, both cameras side by side."""
    return [_shots_of(arm, demo) for demo in arm.demonstrations]


def _shots_of(arm: Arm, demo: DemonstrationRecord) -> DemonstrationShots:
    grasp = _grasp_step(demo)
    path = np.zeros((len(demo.path), 2)) if arm.places is None else on_the_table(arm.places, demo.path)
    aside = path[:, 0]
    widest = int(np.abs(aside[: grasp + 1]).argmax())
    last = min((len(frames) for frames in demo.frames.values()), default=0) - 1
    shots = []
    for step, moment in ((0, "start"), (widest, "widest"), (grasp, "grasp"), (last, "end")):
        if 0 <= step <= last:
            pixels = np.concatenate([frames[step] for frames in demo.frames.values()], axis=1)
            alt = f"{demo.route} demonstration, {moment}, step {step}: {' and '.join(demo.frames)} camera"
            shots.append(Shot(jpeg(f"demo-{arm.name}-{demo.route}-{moment}", pixels, alt), f"{moment}, step {step}"))
    facts = (
        f"{len(demo.actions)} actions, {'success' if demo.success else 'NO success'}, {abs(aside[widest]):.1f} cm to"
        f" the {'right' if aside[widest] > 0 else 'left'}, {demo.contacts} steps with contact"
    )
    return DemonstrationShots(demo.route, facts, shots)


def _grasp_step(demo: DemonstrationRecord) -> int:
    closing = np.flatnonzero(demo.actions[:, -1] > 0)
    return int(closing[0]) if len(closing) else len(demo.actions) - 1


def separation(demos: Iterable[DemonstrationRecord], places: Places | None) -> str:
    """How far the demonstrations are apart at the same moment, at most, before the first grasp."""
    demos = list(demos)
    if len(demos) != 2 or places is None:
        return ""
    steps = min(_grasp_step(demo) for demo in demos) + 1
    apart = 100 * np.linalg.norm(demos[0].path[:steps, :2] - demos[1].path[:steps, :2], axis=1)
    return f"At most {apart.max():.1f} cm apart on the way to the object, at step {int(apart.argmax())}."


def films(arms: Iterable[Arm]) -> list[Film]:
    """A few telling episodes of each arm; videos as long as there is room for them."""
    room, found = VIDEO_BYTES, []
    for arm in arms:
        for rollout in _telling(arm):
            film = _film(arm, rollout, room)
            if film is not None:
                room -= len(film.video.content) if film.video else 0
                found.append(film)
    return found


def _telling(arm: Arm) -> list[RolloutRecord]:
    """The best decoder's first success on either side, the median, and flow matching."""
    best = max((r for r in arm.results() if r.head == "quantile" and r.episodes), key=lambda r: r.rate, default=None)
    chosen: list[RolloutRecord] = []

    def take(**wanted: object) -> None:
        for rollout in arm.rollouts:
            if rollout.film_strip and all(getattr(rollout, name) == value for name, value in wanted.items()):
                chosen.append(rollout)
                return

    if best is not None:
        for side in ("left", "right"):
            take(head="quantile", decoder=best.decoder, success=True, side=side)
    take(head="quantile", decoder="median")
    take(head="flow")
    return list({rollout.key: rollout for rollout in chosen}.values())


def _film(arm: Arm, rollout: RolloutRecord, room: int) -> Film | None:
    strip = rollout.film_strip
    if strip is None:
        return None
    name = decoder_name(rollout.head, rollout.decoder)
    title = f"{name}, {setting_name(arm)}"
    pixels = np.asarray(Image.open(strip).convert("RGB"))
    poster = jpeg(
        f"film-{rollout.key.digest}-start", pixels[: pixels.shape[1] // 2], f"{title}: both cameras at the start"
    )
    moments = strip_frames(pixels)
    frames = [
        jpeg(f"film-{rollout.key.digest}-{i}", frame, f"{title}: moment {i + 1} of {len(moments)}, external camera")
        for i, frame in enumerate(moments)
    ]
    side = f"first passed on the {rollout.side}" if rollout.side else "never passed the plane of the obstacle"
    facts = (
        f"after {rollout.steps} actions; {side}; {rollout.contact_steps} steps with contact; training"
        f" seed {rollout.training_seed}, episode {rollout.episode}"
    )
    file = rollout.files.path(rollout.key, ".mp4")
    video = None
    if file.is_file() and file.stat().st_size <= room:
        alt = f"{title}: video of what the policy saw, in the robot's time"
        video = Picture(f"film-{rollout.key.digest}", "video/mp4", file.read_bytes(), alt)
    return Film(title, rollout.status, facts, frames, video, poster)


def strip_frames(strip: UInt8[Array, "y x 3"]) -> list[UInt8[Array, "y x 3"]]:
    """A few moments of a film strip, first and last among them: its first camera only.

    A strip has square pictures of two cameras side by side, and its moments below each other.
    """
    size = strip.shape[1] // 2
    moments = [strip[top : top + size, :size] for top in range(0, strip.shape[0] - size + 1, size)]
    chosen = np.unique(np.linspace(0, len(moments) - 1, MOMENTS).round().astype(int))
    return [moments[i] for i in chosen]
