"""A small LSTM in DDP on gloo, for tests: a rank of torchrun. Rank SLOW sleeps in its forward pass.
After two iterations each rank waits until a test has made the file CONTROLLED.RANK, and for as long
as the library takes to look at its control block.

    ddp_ranks.py ITERATIONS SLOW CONTROLLED
"""

import os
import sys
import time

import torch
import torch.distributed as distributed
from torch import nn

ITERATIONS = int(sys.argv[1])
SLOW = int(sys.argv[2])
CONTROLLED = f"{sys.argv[3]}.{os.environ['RANK']}"
LOOK_SECONDS = 0.12


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 256)
        self.recurrent = nn.LSTM(256, 256, batch_first=True)
        self.output = nn.Linear(256, 8)

    def forward(self, tokens):
        if distributed.get_rank() == SLOW:
            time.sleep(0.2)
        return self.output(self.recurrent(self.embedding(tokens))[0])


torch.set_num_threads(1)
distributed.init_process_group("gloo")
odd_and_even = [distributed.new_group([r for r in range(distributed.get_world_size()) if r % 2 == k])
                for k in range(2)]
own = odd_and_even[distributed.get_rank() % 2]
# Several buckets: the first gradients are there early.
model = nn.parallel.DistributedDataParallel(Tagger(), bucket_cap_mb=1)
optimizer = torch.optim.Adam(model.parameters())
for i in range(ITERATIONS):
    if i == 2:
        for _ in range(2000):
            if os.path.exists(CONTROLLED):
                break
            time.sleep(0.01)
    if i in (2, 3):  # the library may be looking just now, and is done with the second one
        time.sleep(LOOK_SECONDS)
    optimizer.zero_grad()
    loss = model(torch.randint(0, 64, (4, 8 + i % 3))).square().mean()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    distributed.all_reduce(total)
    work = distributed.all_reduce(total, group=own, async_op=True)
    work.wait()
distributed.barrier()
parts = [torch.zeros(3) for _ in range(distributed.get_world_size())]
distributed.all_gather(parts, torch.ones(3))
peer = distributed.get_rank() ^ 1
if distributed.get_rank() < peer:
    distributed.send(torch.ones(5), peer)
else:
    distributed.recv(torch.zeros(5), peer)
distributed.destroy_process_group()
