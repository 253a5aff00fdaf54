import io

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn

from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.progress import ProgressBar
from lerobot_policy_quantile.util.progress import LoggedProgress
from tests.support.fake_run import plan


def test_the_bar_tells_success_errors_and_what_the_journal_already_held(tmp_path):
    first, second, third = list(plan(3))
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.record(Outcome(first, "success"))
        rows = journal.rows()
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with ProgressBar(console, rows) as bar:
        bar.begin(1, 3)
        assert bar.counts == "success 1/1 (100 %), errors 0"
        bar.report(Outcome(second, "failure"), True)
        bar.report(Outcome(third, "error", traceback="..."), False)
        assert bar.counts == "success 1/2 (50 %), errors 0, repeated 1"
        bar.report(Outcome(third, "error", traceback="..."), True)
        assert bar.counts == "success 1/2 (50 %), errors 1, repeated 1"
        bar.stopping(2)
    shown = console.file.getvalue()
    assert "1 of 3 episodes are in the journal" in shown
    assert "3/3" in shown
    assert "Ctrl-C again kills them" in shown


@pytest.mark.parametrize(("terminal", "told"), [(False, ["2/9", "4/9", "4/9"]), (True, ["4/9"])])
def test_a_log_is_told_once_a_minute_and_at_the_end(terminal, told):
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal, color_system=None)
    now = 0.0
    with LoggedProgress(MofNCompleteColumn(), console=console, clock=lambda: now) as progress:
        task = progress.add_task("work", total=9)
        for moment in (30.0, 60.0, 90.0, 125.0):
            now = moment
            progress.update(task, advance=1)
    lines = console.file.getvalue().split("\n")  # a terminal draws one line over and over
    assert [line.split("\x1b[2K")[-1].strip() for line in lines if "/9" in line] == told
