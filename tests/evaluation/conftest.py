import pytest

from tests.support.killable import finish, rows_of, start


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Table, rows and folder of a whole run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, table, err = finish(start(folder, "--side"))
    assert (code, err) == (0, "")
    return table, rows_of(folder), folder
