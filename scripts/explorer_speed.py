"""How fast `qhead explore` opens and scrubs a run of 6,000 episodes, and how large its single file is.

Chromium says the times itself: marks of the page on its performance timeline, and the moments at which it asked for
frames while the slider moved at every one of them. `make explorer-speed` prints the table.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import psutil

from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace
from lerobot_policy_quantile.explorer.page import single_page
from lerobot_policy_quantile.explorer.run_reading import few_episodes, read_run
from lerobot_policy_quantile.explorer.server import ExplorerServer, Library
from tests.support.browser import Browser, open_browser
from tests.support.waiting import wait_until

EPISODES, TEMPLATES, TASKS = 6_000, 8, 40
SCRUB_SECONDS = 6
SCRUB = """new Promise(done => {
    const slider = document.getElementById('step'), times = [], began = performance.now();
    const move = now => {
        times.push(now);
        slider.value = times.length % Number(slider.max);
        slider.dispatchEvent(new Event('input'));
        if (now - began > MILLISECONDS) done(times); else requestAnimationFrame(move);
    };
    requestAnimationFrame(move);
})"""

REDRAW = """(async () => {
    const chart = document.querySelector('#timeline .plot'), began = performance.now();
    for (let i = 0; i < 5; i++) await Plotly.redraw(chart);
    return (performance.now() - began) / 5;
})()"""


def trace(seed: int, chunk: int, camera: int, replans: int, followed: int) -> Trace:
    """An episode of seven dimensions and 21 levels, with noise in its pictures as cameras have."""
    draws = np.random.default_rng(seed)
    steps = replans * followed
    quantiles = np.cumsum(draws.gamma(0.6, 0.02, (replans, chunk, 7, 21)), axis=-1).astype(np.float32) - 0.1
    actions = quantiles[:, :followed, :, 10].reshape(steps, 7)
    states = np.concatenate([np.zeros((1, 8)), np.pad(actions, ((0, 0), (0, 1)))]).cumsum(0) * 0.02
    scene = draws.normal(128, 40, (camera // 8, camera // 4, 3)).repeat(8, 0).repeat(8, 1)
    frames = [np.clip(scene + draws.normal(0, 3, scene.shape), 0, 255).astype(np.uint8) for _ in range(replans)]
    return Trace(
        actions=list(actions),
        states=list(states),
        contacts=[0] * steps,
        query_steps=list(range(0, steps, followed)),
        quantiles=list(quantiles),
        frames=frames,
        frame_rate=Fraction(20, followed),
    )


def make_run(folder: Path, episodes: int, *, chunk: int = 10, camera: int = 96, followed: int = 5) -> Path:
    """A run whose side files are links to a few."""
    files = SideFiles(folder / "side")
    patterns = []
    for seed in range(min(TEMPLATES, episodes)):
        key = EpisodeKey("pattern", 0, seed, 0, "ours", "median")
        made = trace(seed, chunk, camera, 400 // followed, followed)
        patterns.append((key, files.write(key, made)))
    with Journal(folder / "journal.sqlite") as journal:
        journal._db.execute("PRAGMA synchronous = OFF")  # nothing is lost that could not be made again
        for number in range(episodes):
            pattern, digests = patterns[number % len(patterns)]
            decoder = ("median", "shared(l=0, rho=0.9)", "density(rho=0.9, n=2)")[number % 3]
            key = EpisodeKey("libero_10", number // 3 % TASKS, number // 3 // TASKS, 0, "ours", decoder)
            for suffix in digests:
                os.link(files.path(pattern, suffix), files.path(key, suffix))
            status = "failure" if number % 5 == 0 else "success"
            journal.record(Outcome(key, status, steps=400, side_files=digests))
    return folder


def opened(browser: Browser, address: str) -> dict[str, float]:
    """Milliseconds from the navigation to the listed table and to the first drawn episode."""
    browser.open(address, 1280)
    wait_until(lambda: browser.run("document.body.dataset.drawn !== undefined"), "the first episode")
    marks = browser.run("performance.getEntriesByType('mark').map(m => [m.name, m.startTime])")
    found: dict[str, float] = {}
    for name, when in marks:
        found.setdefault(name, when)
    return found


def renderer_megabytes() -> float:
    """Resident memory of the largest page process below this one."""
    sizes = [
        child.memory_info().rss
        for child in psutil.Process().children(recursive=True)
        if "--type=renderer" in " ".join(child.cmdline())
    ]
    return max(sizes) / 1e6


def look(folder: Path, times: int) -> list[tuple[str, str]]:
    """Serve the run, open it several times, scrub."""
    library = Library([folder])
    began = time.perf_counter()
    library.runs()
    lines = [("journal read by the server, s", f"{time.perf_counter() - began:.2f}")]
    with ExplorerServer(library) as server, open_browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        marks = [opened(browser, server.address) for _ in range(times)]
        for name in ("listed", "drawn"):
            found = ", ".join(f"{mark[name] / 1000:.2f}" for mark in marks)
            lines.append((f"navigation to {name}, s, {times} times", found))
        asked = [address for address in browser.requests() if "/data/episode/" in address]
        lines.append(("episodes fetched to open", str(len(asked))))
        frames = np.diff(browser.run(SCRUB.replace("MILLISECONDS", str(1000 * SCRUB_SECONDS))))
        lines.append(("frames per second while scrubbing", f"{1000 / frames.mean():.0f}"))
        lines.append(("frame time, median and 95 %, ms", f"{np.median(frames):.1f}, {np.quantile(frames, 0.95):.1f}"))
        lines.append(("the library's redraw of the time axis, ms", f"{browser.run(REDRAW):.0f}"))
        lines.append(("memory of the page's process, MB", f"{renderer_megabytes():.0f}"))
        browser.call("Performance.enable")
        metrics = {m["name"]: m["value"] for m in browser.call("Performance.getMetrics")["metrics"]}
        lines.append(("of it scripts' objects, MB", f"{metrics['JSHeapUsedSize'] / 1e6:.0f}"))
        if browser.complaints():
            raise SystemExit(f"the page complained: {json.dumps(browser.complaints())}")
    return lines


def main() -> None:
    """Make the runs, look at them, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qhead-explorer-") as folder:
        run = make_run(Path(folder) / "many", options.episodes)
        lines = [("episodes", str(options.episodes)), *look(run, options.times)]
        size = len(single_page(few_episodes([read_run(run)], [], 20)).encode())
        lines.append(("single file, 20 episodes, 96 px, chunks of 10, MB", f"{size / 1e6:.1f}"))
        large = read_run(make_run(Path(folder) / "large", 20, chunk=50, camera=256, followed=10))
        size = len(single_page([large]).encode())
        lines.append(("single file, 20 episodes, 256 px, chunks of 50, MB", f"{size / 1e6:.1f}"))
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    for name, value in [*lines, ("load of the machine", load)]:
        print(f"{name:52} {value}")


if __name__ == "__main__":
    main()
