"""The toy arm's settings; LeRobot looks for the robot's class one package up."""

from dataclasses import dataclass

from lerobot.robots import RobotConfig


@RobotConfig.register_subclass("toy_arm")
@dataclass
class ToyArmConfig(RobotConfig):
    """`journal` gets every action; after `actions` of them the arm stops the rollout as Ctrl-C would."""

    journal: str = ""
    actions: int = 30
