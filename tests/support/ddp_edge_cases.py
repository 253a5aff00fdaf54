"""`lerobot-train` as torchrun starts it, and then, in the same two processes, the cases that could hang.

One start instead of two: loading LeRobot takes longer than all the cases. Rank 0 prints a line per case.
"""

import os

import torch
import torch.distributed as dist
from lerobot.scripts.lerobot_train import main as lerobot_train
from torch.nn.parallel import DistributedDataParallel

from tests.support.policies import make_batch, make_policy

CASES = {
    "drop everything": {"drop_ratio": 1.0},
    "padding on one rank": {},
    "padding on both ranks": {},
    "median only": {"supervise": "median"},
    "no prompts": {"n_prompts": 0},
}


def edge_cases() -> None:
    rank = join_again()
    for name, settings in CASES.items():
        policy = make_policy(seed=rank, **settings).train()
        batch = make_batch(policy.config, rows=2, seed=rank)
        if name == "padding on both ranks" or (name == "padding on one rank" and rank == 1):
            batch["action_is_pad"][:] = True
        # Stricter than LeRobot, which lets parameters go without a gradient.
        parallel = DistributedDataParallel(policy, find_unused_parameters=False)
        optimizer = torch.optim.AdamW(policy.get_optim_params())
        for _ in range(2):
            loss, _ = parallel(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"case: {name}: loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


def join_again() -> int:
    """A second process group of the same launch, and the rank in it.

    It has a prefix of its own in the launcher's store: under the default one lie the addresses of the group that
    `lerobot-train` has closed, and a rank that reads them before the other has written its new one dials a dead port.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.PrefixStore("edge cases", dist.TCPStore(host, port, is_master=False))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    return rank


if __name__ == "__main__":
    lerobot_train()
    edge_cases()
