"""What makes a training fit a GPU. The counting itself is `backbone/memory.py`'s; here, what is chosen from it."""

import pytest

from lerobot_policy_quantile.backbone.memory import TrainingShape, training_memory, training_peak
from lerobot_policy_quantile.backbone.variants import VARIANTS
from lerobot_policy_quantile.studies import training_fit
from lerobot_policy_quantile.studies.plans.commands import Fit
from lerobot_policy_quantile.studies.training_fit import GIB, USABLE, fit_training, fit_workers

TINY = VARIANTS["tiny"]


def counted(monkeypatch, fixed, per_row, checkpointed):
    """A model whose memory is linear: GiB that are always there, and per row without and with checkpointing."""

    def peak(backbone, batch, rows, processes, precision, checkpointing, freeze_vlm):
        return GIB * (
            fixed + rows * (checkpointed if checkpointing else per_row) * (2 if precision == "float32" else 1)
        )

    monkeypatch.setattr(training_fit, "peak", peak)


@pytest.mark.parametrize(
    ("fixed", "per_row", "checkpointed", "chosen"),
    [
        (5, 0.05, 0.01, Fit()),
        (5, 0.12, 0.01, Fit("bfloat16")),
        (5, 0.30, 0.01, Fit("bfloat16", micro_batch=32)),
        (5, 3.0, 0.2, Fit("bfloat16", True, 64)),
        (5, 3.0, 0.01, Fit("bfloat16", True)),
        (21, 1.0, 0.5, Fit("bfloat16", True, 1)),
    ],
)
def test_the_plainest_training_that_fits_is_chosen(monkeypatch, fixed, per_row, checkpointed, chosen):
    counted(monkeypatch, fixed, per_row, checkpointed)
    assert fit_training(24, batch=128) == chosen


@pytest.mark.bad_input
def test_what_cannot_fit_is_refused_with_what_it_needs(monkeypatch):
    counted(monkeypatch, 60, 1.0, 0.5)
    with pytest.raises(ValueError, match=r"24 is too small: training with the VLM trained on 2 GPU\(s\) needs 60 GiB"):
        fit_training(24, batch=64, processes=2, freeze_vlm=False)
    with pytest.raises(ValueError, match=r"--gpu-memory must be one of 24, 48, 80 \(GiB of one GPU\); got 32"):
        fit_training(32, batch=128)


def test_the_peak_holds_what_training_memory_counts_and_grows_with_rows_pieces_shrink_it():
    small, large = (training_peak(TrainingShape(TINY, rows)) for rows in (4, 16))
    assert small < large
    held = training_memory(TrainingShape(TINY, 16))
    assert held.total - held.gradients < large, "activations go while gradients come"
    pieces = training_peak(TrainingShape(TINY, 16), micro_batch=4)
    assert small < pieces < large, "the images of the other pieces wait on the device"
    assert training_peak(TrainingShape(TINY, 16, gradient_checkpointing=True)) < large
    assert training_peak(TrainingShape(TINY, 4), freeze_vlm=False) > small
    assert training_peak(TrainingShape(TINY, 4), processes=2) > small


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "card"), [(1, 24), (2, 24), (1, 80)])
def test_the_full_size_method_fits_and_todays_line_needs_what_was_measured(processes, card):
    batch = 128 // processes
    fit = fit_training(card, batch=batch, processes=processes)
    settings = ("pi05", batch, fit.micro_batch or batch, processes, fit.dtype, fit.gradient_checkpointing, True)
    assert training_fit.peak(*settings) <= USABLE * card * GIB
    assert training_fit.peak("pi05", 128, 128, 1, "float32", False, True) / GIB == pytest.approx(53, abs=2)
    assert fit == (Fit() if card == 80 else Fit("bfloat16", micro_batch=32 // processes))


def test_evaluation_holds_as_many_models_as_fit():
    assert fit_workers(24, Fit("bfloat16")) == 2
    assert fit_workers(80, Fit()) == 4
