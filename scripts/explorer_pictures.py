"""The pictures of docs/guides/explorer.md: the page on a run of `make demo`, in Chromium.

python -m scripts.explorer_pictures "runs/demo/embedded+obstacle" --out docs/guides
"""

import argparse
import json
import threading
from pathlib import Path

from lerobot_policy_quantile.explorer.run_reading import read_run
from lerobot_policy_quantile.explorer.server import ExplorerServer, Library
from tests.support.browser import open_browser
from tests.support.waiting import wait_until

SHARED, DENSITY = "shared(l=0, rho=0.9)", "density(rho=0.9, n=2)"


def main() -> None:
    """An episode, two decoders side by side in the dark scheme, and a phone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = read_run(options.run).rows
    place = {row.key.decoder: f"0/{row.key.digest}" for row in reversed(rows) if row.key.policy.startswith("quantile")}
    pictures = {
        "explorer.png": (1280, 1000, False, {"e": place[SHARED], "t": 80, "name": "rank", "rank": 0.9}),
        "explorer_compare.png": (1280, 1000, True, {"e": place["median"], "c": place[DENSITY], "t": 60}),
        "explorer_phone.png": (390, 900, False, {"e": place[DENSITY], "t": 120, "name": "density"}),
    }
    with ExplorerServer(Library([options.run])) as server, open_browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, (width, height, dark, link) in pictures.items():
            address = "&".join(f"{key}={value}" for key, value in link.items())
            browser.open(f"{server.address}#{address}", width, height, dark=dark)
            drawn = " ".join(str(link[part]) for part in ("e", "c") if part in link)
            wait_until(lambda drawn=drawn: browser.run("document.body.dataset.drawn") == drawn, name)
            wait_until(lambda: not browser.run("document.body.innerText.includes('…')"), "the table's summaries")
            browser.screenshot(options.out / name)
            if complaints := browser.complaints():
                raise SystemExit(f"{name}: {json.dumps(complaints)}")
            print(options.out / name)


if __name__ == "__main__":
    main()
