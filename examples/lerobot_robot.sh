#!/bin/sh
# A robot that LeRobot drives itself: the policy is a LeRobot plugin, so lerobot-rollout runs it on the robot's machine,
# without a server. Change robot and cameras to yours; the camera names are those the policy was trained with.
#   examples/lerobot_robot.sh POLICY_FOLDER PORT "put the can into the basket"
set -eu
policy=${1:?usage: lerobot_robot.sh POLICY_FOLDER PORT TASK}
port=${2:?the serial port of the arm, such as /dev/ttyACM0}
task=${3:?what the robot is told to do}

lerobot-rollout \
    --strategy.type=base \
    --policy.path="$policy" \
    --robot.type=so101_follower \
    --robot.port="$port" \
    --robot.cameras="{image: {type: opencv, index_or_path: 0, width: 640, height: 480, fps: 30}, image2: {type: opencv, index_or_path: 2, width: 640, height: 480, fps: 30}}" \
    --task="$task" \
    --duration=60
