import numpy as np
import pytest

from lerobot_policy_quantile.util.quantiles import quantile_at
from tests.core.test_quantile_function import random_function


@pytest.mark.parametrize("rank", [0.0, 0.01, 0.025, 0.1, 0.5, 0.777, 0.975, 1.0])
@pytest.mark.parametrize("k", [3, 5, 21])
def test_it_is_the_quantile_function_of_the_maths(rank, k):
    law = random_function(2, 3, k=k)
    ours = quantile_at(law.quantiles.numpy(), law.levels.numpy(), rank)
    np.testing.assert_array_equal(ours, law(rank).numpy())


def test_a_uniform_law_is_carried_on_to_its_ends():
    """Uniform on [3, 7]: Q(u) = 3 + 4 u, from levels 0.25, 0.5 and 0.75 alone."""
    levels = [0.25, 0.5, 0.75]
    quantiles = 3 + 4 * np.array(levels)
    assert [float(quantile_at(quantiles, levels, rank)) for rank in (0.0, 0.4, 1.0)] == pytest.approx([3, 4.6, 7])
