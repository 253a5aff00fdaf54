import pytest

from tests.support.study_folder import write_study


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory):
    """A whole study; tests do not write into it."""
    return write_study(tmp_path_factory.mktemp("studies") / "whole", episodes=3, updates=200)
