#!/bin/sh
# The same `lerobot-rollout` as for an arm on a desk, with the embedded scene as the robot: nothing but this machine.
#   examples/lerobot_simulated.sh POLICY_FOLDER SECONDS [OUT]
set -eu
policy=${1:?usage: lerobot_simulated.sh POLICY_FOLDER SECONDS [OUT]}
seconds=${2:?how long the robot may run, such as 120}
out=${3:-runs/lerobot-simulated}
here=$(dirname "$0")
mkdir -p "$out"

PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" lerobot-rollout \
    --strategy.type=base \
    --policy.path="$policy" \
    --policy.device=cpu \
    --robot.discover_packages_path=lerobot_robot_embedded \
    --robot.type=embedded_scene \
    --robot.calibration_dir="$out" \
    --robot.report="$out/report.json" \
    --task="pick up the can and place it in the basket" \
    --return_to_initial_position=false \
    --fps=20 \
    --duration="$seconds"
cat "$out/report.json"
