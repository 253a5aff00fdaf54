"""Films and Rerun recordings of an episode, and the commands that write them."""

import av
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from tests.support.explored_run import QUERIES, SHARED, STEPS, key, made_trace


def invoke(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200"})


def test_a_film_has_a_picture_per_replan_with_cameras_and_fan(usual_run, tmp_path):
    out = tmp_path / "film.gif"
    done = invoke("film", usual_run, "--episode", key(1).digest, "--episode", key(1, decoder=SHARED).text, "--out", out)
    assert done.exit_code == 0, done.output
    with Image.open(out) as film:
        assert film.n_frames >= QUERIES  # equal pictures at the end are one
        shots = []
        for number in (0, QUERIES - 1):
            film.seek(number)
            shots.append(np.asarray(film.convert("RGB")).astype(int))
    width = shots[0].shape[1]
    assert np.abs(shots[0] - shots[1])[:, : width // 2].max() > 100  # the cameras moved on
    inked = [(shot[:, width // 2 :].sum(-1) < 200).sum() for shot in shots]
    assert inked[1] > inked[0] + 200  # more was executed


def test_a_film_as_video(usual_run, tmp_path):
    out = tmp_path / "film.mp4"
    done = invoke("film", usual_run, "--episode", key(0).digest, "--dimensions", "0,6", "--out", out)
    assert done.exit_code == 0, done.output
    with av.open(str(out)) as film:
        assert sum(1 for _ in film.decode(video=0)) == QUERIES


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "x.avi"), "--out must end in .gif or .mp4; got x.avi"),
        (("--out", "x.gif", "--dimensions", "0-9"), "--dimensions must lie in 0..6; got 9"),
    ],
)
def test_a_film_that_cannot_be_made_says_why(usual_run, arguments, said):
    done = invoke("film", usual_run, "--episode", key(0).digest, *arguments)
    assert done.exit_code == 1
    assert said in done.output


def test_a_recording_reads_back(usual_run, tmp_path):
    experimental = pytest.importorskip("rerun.experimental")
    out = tmp_path / "episode.rrd"
    done = invoke("export-rerun", usual_run, "--episode", key(0).digest, "--out", out)
    assert done.exit_code == 0, done.output
    reader = experimental.RrdReader(out)
    assert [entry.recording_id for entry in reader.recordings()] == [key(0).digest]
    assert len(reader.blueprints()) == 1
    rows: dict[str, int] = {}
    values = []
    for chunk in reader.stream().to_chunks():
        rows[chunk.entity_path] = rows.get(chunk.entity_path, 0) + chunk.num_rows
        if chunk.entity_path == "/actions/dx/executed":
            batch = chunk.to_record_batch()
            values += [number for cell in batch.column(batch.num_columns - 1).to_pylist() for number in cell]
    per_step = ("/actions/dx/executed", "/actions/rotation_z/0.975", "/ranks/dy", "/spread", "/contacts")
    assert [rows[entity] for entity in per_step] == [STEPS] * 5
    assert [rows[entity] for entity in ("/alarm", "/cameras/external", "/cameras/wrist")] == [QUERIES] * 3
    assert rows["/surprise"] == QUERIES - 1  # nobody can be surprised at first
    assert (rows["/hand/now"], rows["/hand/path"]) == (STEPS + 1, 1)
    np.testing.assert_allclose(values, np.asarray(made_trace(key(0)).actions)[:, 0], atol=1e-6)


def test_a_page_is_written_and_says_how_much_is_in_it(usual_run, tmp_path):
    out = tmp_path / "page.html"
    done = invoke("explore", usual_run, "--out", out, "--most", "3")
    assert done.exit_code == 0, done.output
    assert "3 of 18 episodes" in done.output
    assert out.read_text().startswith("<!doctype html>")
    missing = invoke("explore", tmp_path / "nowhere")
    assert missing.exit_code == 1
    assert "RUN must be a folder that qhead eval wrote" in missing.output
    unknown = invoke("explore", usual_run, "--policy", "our=FOLDER")
    assert unknown.exit_code == 1
    assert "did you mean 'ours'?" in unknown.output
