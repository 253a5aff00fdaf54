"""The paper's success rates in per cent: beside them stand ours.

Keys are (head, decoder) with the decoder's canonical text; heads without decoders have `own`.
"""

OWN = "own"

FREE: dict[tuple[str, str], float] = {
    ("quantile", "native(l=0.1, rho=0.9, T=0.35)"): 94.0,
    ("quantile", "independent(l=0, rho=0.9)"): 87.0,
    ("quantile", "shared(l=0, rho=0.9)"): 92.0,
    ("quantile", "density(rho=0.9, n=2)"): 95.0,
    ("quantile", "median"): 100.0,
    ("flow", OWN): 3.0,
    ("l1", OWN): 100.0,
    ("l2", OWN): 100.0,
}
"""Without the obstacle, 400 actions; 100 episodes each."""

OBSTACLE: dict[tuple[str, str], float] = {
    ("quantile", "native(l=0.1, rho=0.9, T=0.35)"): 1.0,
    ("quantile", "independent(l=0, rho=0.9)"): 4.0,
    ("quantile", "shared(l=0, rho=0.9)"): 6.0,
    ("quantile", "shared(l=0.1, rho=0.9)"): 4.0,
    ("quantile", "shared(l=0.2, rho=0.9)"): 15.0,
    ("quantile", "shared(l=0.3, rho=0.9)"): 7.0,
    ("quantile", "shared(l=0.4, rho=0.9)"): 3.0,
    ("quantile", "density(rho=0.9, n=2)"): 13.0,
    ("quantile", "density_all(rho=0.9, n=1)"): 14.0,
    ("quantile", "densest"): 0.0,
    ("quantile", "median"): 0.0,
    ("flow", OWN): 0.0,
    ("l1", OWN): 0.0,
    ("l2", OWN): 0.0,
}
"""With the obstacle, 600 actions; 100 episodes each."""


def paper_rate(obstacle: bool, head: str, decoder: str) -> float | None:
    """The paper's rate in per cent, None where it reports none."""
    return (OBSTACLE if obstacle else FREE).get((head, decoder))
