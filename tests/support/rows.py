"""Journal rows out of thin air."""

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey

VERSIONS = {"mujoco": "3.3.2", "robosuite": "1.4.0", "assets": "abc", "protocol": "paper", "camera_size": "256"}


def row(
    scene, task=0, index=0, *, status="success", policy="ours", decoder="own", seed=0, steps=100, **versions
) -> Row:
    return Row(
        key=EpisodeKey(scene, task, index, seed, policy, decoder),
        status=status,
        attempts=1,
        steps=steps,
        simulated_seconds=steps / 20,
        wall_seconds=1.0,
        first_action=None,
        contacts=0,
        final_state=None,
        versions={**VERSIONS, "policy": f"weights of {policy}", "limit": "280", **versions},
        hashes={},
        traceback="boom" if status == "error" else None,
        side_error=None,
    )


def rows(scene, task, wins, judged, **options) -> list[Row]:
    """`judged` episodes of a task, the first `wins` of them successes."""
    return [
        row(scene, task, index, status="success" if index < wins else "failure", **options) for index in range(judged)
    ]
