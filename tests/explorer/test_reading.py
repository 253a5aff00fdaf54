"""Runs that others made, broke or wrote to do harm: what can be read is shown, what cannot is named."""

import io
import json
import os
import random
import sqlite3
import struct
import zipfile

import numpy as np
import pytest
import torch

from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.explorer.episode_reading import executed_law, first_alarm, mean_spread, read_episode
from lerobot_policy_quantile.explorer.packing import index_of, packed_episode, summary_of
from lerobot_policy_quantile.explorer.run_reading import PolicyUnits, few_episodes, read_named, read_run
from lerobot_policy_quantile.util.quantiles import levels_of, quantile_at, rank_of
from tests.support.explored_run import EXECUTED, STEPS, key, law_of, made_quantiles, usual_keys, write_run


@pytest.fixture
def run(tmp_path):
    return read_run(write_run(tmp_path / "run", [key(0)]))


def side(run, suffix=".npz"):
    return SideFiles(run.folder / "side").path(run.rows[0].key, suffix)


def rewrite(run, **changes):
    """The side file with some arrays changed; None leaves one out."""
    arrays = SideFiles(run.folder / "side").read(run.rows[0].key) | changes
    np.savez(side(run), **{name: array for name, array in arrays.items() if array is not None})


def test_levels_and_ranks_without_torch_are_the_maths_own():
    np.testing.assert_allclose(levels_of(21), quantile_levels(21).numpy(), atol=1e-7)
    quantiles = made_quantiles(3)[0, :, :3].astype(float)
    values = quantiles[..., 4] + np.linspace(-0.1, 0.3, 3)
    own = law_of(quantiles).cdf(torch.tensor(values)).numpy()
    np.testing.assert_allclose(rank_of(quantiles, levels_of(21), values), own, atol=1e-9)


def test_every_executed_action_has_the_law_of_its_replan(run):
    record = read_episode(run, run.rows[0])
    law = executed_law(record)
    assert law.shape == (STEPS, 7, 21)
    np.testing.assert_array_equal(law[EXECUTED + 2], record.quantiles[1, 2])
    np.testing.assert_allclose(quantile_at(law, levels_of(21), 0.5), record.actions, atol=1e-6)
    assert record.problems == []
    assert first_alarm(record) == 4 * EXECUTED


def test_units_of_the_policy_scale_the_spread(run):
    record = read_episode(run, run.rows[0])
    known = read_run(run.folder, {"ours": PolicyUnits((2.0,) * 7, (6,))})
    assert mean_spread(record, known) == pytest.approx(mean_spread(record, run) / 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quantiles": None}, "predicted no quantiles"),
        ({"actions": None}, "actions are not in the side file"),
        ({"actions": np.full((STEPS, 7), np.nan)}, "210 of 210 numbers are not finite"),
        ({"actions": np.zeros(3)}, "must have axes (t, d)"),
        ({"actions": np.zeros((STEPS - 1, 7))}, "the journal counts 30 steps, the side file 29"),
        ({"quantiles": np.zeros((6, 8, 7, 20))}, "odd number of levels"),
        ({"quantiles": np.zeros((5, 8, 7, 21))}, "q = 6"),
        ({"quantiles": -np.ones((6, 8, 7, 21)).cumsum(-1)}, "must not decrease"),
        ({"quantiles": np.full((6, 8, 7, 21), np.inf)}, "not finite"),
        ({"query_steps": np.array([0, 5, 5, 6, 7, 8])}, "increasing steps"),
        ({"query_steps": np.array([0, 5, 10, 15, 20, 500])}, "must lie within"),
        ({"alarm": np.zeros((6, 2))}, "alarm: must be one number per query"),
        ({"states": np.zeros((4, 8))}, "one more than the 30 actions"),
        ({"contacts": np.array(["x"] * STEPS)}, "must hold numbers"),
        ({"extra": np.array([{"a": 1}], dtype=object)}, "must hold numbers"),
    ],
)
def test_what_does_not_fit_is_left_out_and_named(run, changes, said):
    rewrite(run, **changes)
    assert any(said in problem for problem in read_episode(run, run.rows[0]).problems)
    for small in (False, True):
        packed_episode(run, run.rows[0], small=small)


def test_an_array_that_claims_more_than_it_holds_is_refused(run):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**3)})
    with zipfile.ZipFile(side(run), "w") as archive:
        archive.writestr("actions.npy", header.getvalue() + b"\0" * 64)
    assert any("it takes 8000000000000" in problem for problem in read_episode(run, run.rows[0]).problems)


def test_a_link_out_of_the_folder_and_a_pipe_are_not_read(run, tmp_path):
    outside = tmp_path / "outside.npz"
    side(run).rename(outside)
    side(run).symlink_to(outside)
    assert any("link out of the run's folder" in problem for problem in read_episode(run, run.rows[0]).problems)
    side(run).unlink()
    os.mkfifo(side(run))
    assert any("is not a file" in problem for problem in read_episode(run, run.rows[0]).problems)


def test_a_film_strip_stands_in_for_a_missing_video(tmp_path):
    run = read_run(write_run(tmp_path / "run", [key(0)], video=False))
    assert b"pictures of the film strip" in packed_episode(run, run.rows[0])


def test_damaged_rows_are_named_and_the_others_shown(tmp_path):
    folder = write_run(tmp_path / "run", usual_keys(3))
    with sqlite3.connect(folder / "journal.sqlite") as db:
        db.execute("DROP TRIGGER results_keep_update")
        db.execute("UPDATE results SET steps = 7 WHERE rowid = 2")
    found = read_run(folder)
    assert len(found.rows) == 8
    assert "damaged" in found.problems[0]
    assert len(index_of([found])["rows"]) == 8
    (folder / "journal.sqlite").write_bytes(b"no journal")
    assert read_run(folder).rows == ()
    assert read_run(folder).problems


def strange_journal(folder, **changes):
    """A journal without a schema that would refuse anything, and one row."""
    names = (
        "key", "status", "attempts", "steps", "simulated_seconds", "wall_seconds", "first_action", "contacts",
        "final_state", "versions", "hashes", "traceback", "side_error",
    )  # fmt: skip
    usual = {"key": key(0).text, "status": "success", "attempts": 1, "steps": 3, "simulated_seconds": 1.0}
    usual |= {"contacts": 0, "versions": "{}", "hashes": "{}"} | changes
    folder.mkdir()
    with sqlite3.connect(folder / "journal.sqlite") as db:
        db.execute(f"CREATE TABLE results ({', '.join(names)})")
        db.execute("CREATE TABLE errors (key, attempt, traceback)")
        db.execute("CREATE TABLE contexts (scope, context)")
        db.execute(f"INSERT INTO results VALUES ({', '.join('?' * len(names))})", [usual.get(name) for name in names])
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "../../etc/passwd"}, {"key": '["a",0,0,0,"b"]'}, {"key": '["a\\n",0,0,0,"b","c"]'}, {"key": "[" * 9999},
        {"key": b"\xff"}, {"status": "<b>"}, {"steps": "many"}, {"steps": -1}, {"steps": 2.5}, {"contacts": None},
        {"simulated_seconds": "1"}, {"simulated_seconds": float("inf")}, {"versions": "no JSON"}, {"hashes": None},
        {"traceback": 7}, {"side_error": 1.5},
    ],
)  # fmt: skip
def test_a_row_that_no_schema_would_take_is_named(tmp_path, changes):
    found = read_run(strange_journal(tmp_path / "run", **changes))
    assert found.rows == ()
    assert found.problems
    json.dumps(index_of([found]), allow_nan=False)


def test_the_usual_row_without_a_schema_is_read(tmp_path):
    assert len(read_run(strange_journal(tmp_path / "run")).rows) == 1


def test_tables_of_other_shapes_are_named(tmp_path):
    folder = strange_journal(tmp_path / "run")
    with sqlite3.connect(folder / "journal.sqlite") as db:
        db.execute("CREATE TABLE seals (number, place)")
        db.execute("INSERT INTO seals VALUES ('x', 1)")
    found = read_run(folder)
    assert found.rows == ()
    assert found.problems


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Cut, changed, doubled, filled with noise, or nothing at all."""
    kind, size = draw.randrange(6), len(content)
    if kind == 0:
        return content[: draw.randrange(size)]
    if kind == 1:
        place = draw.randrange(size)
        return content[:place] + draw.randbytes(draw.randrange(1, 200)) + content[place:]
    if kind == 2:
        changed = bytearray(content)
        for _ in range(draw.randrange(1, 60)):
            changed[draw.randrange(size)] = draw.randrange(256)
        return bytes(changed)
    if kind == 3:
        return draw.randbytes(draw.randrange(4000))
    if kind == 4:
        return content + content
    return b""


def problems_of(run) -> list[str]:
    content = packed_episode(run, run.rows[0])
    (length,) = struct.unpack("<I", content[:4])
    return json.loads(content[4 : 4 + length])["problems"]


def test_a_thousand_broken_files_and_rows_end_in_words(tmp_path):
    """Arrays, videos, strips and journals: the page always gets an episode, and the broken file is named in it."""
    draw, folder = random.Random(0), write_run(tmp_path / "run", [key(0)])
    run = read_run(folder)
    files = [side(run, suffix) for suffix in (".npz", ".mp4", ".png")] + [folder / "journal.sqlite"]
    whole = {path: path.read_bytes() for path in files}
    for number in range(1000):
        path = files[number % 4]
        content = damaged(whole[path], draw)
        path.write_bytes(content)
        if path.suffix == ".png":  # it is read where there is no video
            side(run, ".mp4").unlink()
        if path.suffix == ".sqlite":
            found = read_run(folder)
            assert index_of([found])["rows"] == index_of([run])["rows"] or found.problems
        else:
            summary_of(run, run.rows[0])
            assert content == whole[path] or any(path.name in problem for problem in problems_of(run)), number
        for restored in files:
            restored.write_bytes(whole[restored])


def test_episodes_of_a_key_stay_together_in_a_file(tmp_path):
    run = read_run(write_run(tmp_path / "run", usual_keys(3)))
    few = few_episodes([run], [], 3)
    assert {row.key.index for row in few[0].rows} == {0}
    one = few_episodes([run], [run.rows[4].key.digest], 20)
    assert [row.key for row in one[0].rows] == [run.rows[4].key]
    with pytest.raises(ValueError, match="--episode must be a key"):
        few_episodes([run], ["nobody"], 20)
    with pytest.raises(ValueError, match="RUN must be a folder"):
        read_named(tmp_path / "nowhere", "x")
