"""The moving picture of the README: one trained quantile head, its median beside sampled ranks, from a study's journal.

`make picture` makes docs/routes.gif from runs/demo. Captions say what the journal says.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lerobot_policy_quantile.studies.two_demo.records import Arm, RolloutRecord, load_study
from lerobot_policy_quantile.studies.two_demo.report.names import decoder_name
from lerobot_policy_quantile.studies.two_demo.result import is_deterministic

PANEL, CAPTION, GAP = 224, 44, 6
FRAMES, HOLD = 48, 10
"""Frames of the picture, the longest episode's; and how many more show its end."""
MILLISECONDS = 90
COLOURS = 96
GROUND, INK, GOOD, BAD = "#ffffff", "#1b1f24", "#1a7f37", "#b42318"


def chosen(arm: Arm) -> list[RolloutRecord]:
    """The median's first episode, and of one sampling decoder the first successes on either side."""
    median = next(r for r in arm.rollouts if r.decoder == "median")
    for result in sorted(arm.results(), key=lambda r: -r.rate):
        if result.head == "quantile" and not is_deterministic(result.head, result.decoder):
            passed = [r for r in arm.rollouts if r.decoder == result.decoder and r.head == "quantile" and r.success]
            sides = {r.side: r for r in reversed(passed)}
            if {"left", "right"} <= sides.keys():
                return [median, sides["left"], sides["right"]]
    raise SystemExit(f"{arm.name}: no sampling decoder succeeded on both sides; nothing to show")


def external(rollout: RolloutRecord) -> list[np.ndarray]:
    """What the external camera saw, the left half of the episode's video."""
    with av.open(str(rollout.files.path(rollout.key, ".mp4"))) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    return [frame[:, : frame.shape[1] // 2] for frame in frames]


def caption(rollout: RolloutRecord) -> tuple[str, str, str]:
    """Decoder, outcome and the outcome's colour."""
    name = decoder_name(rollout.head, rollout.decoder)
    if not rollout.success:
        return name, "fails, runs into the box" if rollout.contacts else "fails", BAD
    return name, f"success, passes on the {rollout.side}", GOOD


def drawn(frames: Sequence[np.ndarray], words: Sequence[tuple[str, str, str]]) -> Image.Image:
    """One moment of all episodes, side by side."""
    sheet = Image.new("RGB", (len(frames) * (PANEL + GAP) - GAP, PANEL + CAPTION), GROUND)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for column, (frame, (name, outcome, colour)) in enumerate(zip(frames, words, strict=True)):
        left = column * (PANEL + GAP)
        sheet.paste(Image.fromarray(frame).resize((PANEL, PANEL), Image.Resampling.LANCZOS), (left, 0))
        pen.text((left + 4, PANEL + 4), name, INK, font)
        pen.text((left + 4, PANEL + 23), outcome, colour, font)
    return sheet


def main() -> None:
    """Write the picture and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="a folder that qhead study two-demo wrote")
    parser.add_argument("--arm", default="embedded+obstacle")
    parser.add_argument("--out", type=Path, default=Path("docs/routes.gif"))
    options = parser.parse_args()
    arm = next(arm for arm in load_study(options.study).arms if arm.name == options.arm)
    rollouts = chosen(arm)
    films, words = [external(rollout) for rollout in rollouts], [caption(rollout) for rollout in rollouts]
    longest = max(map(len, films))
    moments = np.linspace(0, longest - 1, min(FRAMES, longest)).round().astype(int)
    sheets = [drawn([film[min(moment, len(film) - 1)] for film in films], words) for moment in moments]
    small = [sheet.quantize(COLOURS, dither=Image.Dither.NONE) for sheet in [*sheets, *[sheets[-1]] * HOLD]]
    small[0].save(options.out, save_all=True, append_images=small[1:], duration=MILLISECONDS, loop=0, optimize=True)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB, {len(small)} frames")


if __name__ == "__main__":
    main()
