import codecs
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from lerobot_policy_quantile.scenes.libero.assets import libero_package
from lerobot_policy_quantile.scenes.libero.initial_states import load_initial_states


def write(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
    return path


def test_stored_states_read_as_torch_reads_them():
    path = next((libero_package() / "init_files" / "libero_object").glob("*.pruned_init"))
    reconstruct = np.zeros(1).__reduce__()[0]
    arrays = [(reconstruct, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype, np.dtypes.Float64DType]
    with torch.serialization.safe_globals([*arrays, codecs.encode]):
        np.testing.assert_array_equal(load_initial_states(path), torch.load(path, weights_only=True))


def test_arrays_survive_a_round_trip(tmp_path):
    states = np.random.default_rng(0).normal(size=(3, 5))
    np.testing.assert_array_equal(load_initial_states(write(tmp_path / "a.pruned_init", states)), states)


class Attack:
    def __reduce__(self):
        return os.mkdir, ("broken_in",)


@pytest.mark.bad_input
def test_a_pickle_that_would_run_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"may only hold numpy arrays; the file asks for \w+\.mkdir"):
        load_initial_states(write(tmp_path / "a.pruned_init", Attack()))
    assert not (tmp_path / "broken_in").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize("content", [[1, 2], np.zeros(3), np.full((2, 2), np.nan), np.zeros((2, 2), dtype=np.int64)])
def test_anything_but_finite_rows_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match="initial states must be"):
        load_initial_states(write(tmp_path / "a.pruned_init", content))


@pytest.mark.bad_input
def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.pruned_init").write_bytes(pickle.dumps(np.zeros((2, 2))))
    with pytest.raises(ValueError, match="must be a zip archive"):
        load_initial_states(tmp_path / "a.pruned_init")
