"""Data parallel training of two ranks on one GPU, over NCCL: each rank tells NCCL that it is a host of its own,
and they talk over sockets. NCCL refuses two ranks of one host on one GPU. Times, and who is
last, say little, as the ranks take turns on the GPU; the calls are those of two GPUs.

From iteration --slow-from on, the last rank computes --repeat forward passes more. Prints one line of JSON."""
import json
import os
import socket
import subprocess
import sys
import time

import torch
from torch import nn

import common

RANKS = 2


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def spawn():
    """The ranks as children; the status of the first that failed."""
    port = str(free_port())
    children = [subprocess.Popen([sys.executable, *sys.argv],
                                 env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
                                      "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NCCL_HOSTID": f"host-{rank}",
                                      "NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1",
                                      "NCCL_SOCKET_IFNAME": "lo"}) for rank in range(RANKS)]
    return next((status for status in [child.wait() for child in children] if status != 0), 0)


def train(options):
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("nccl" if options.device == "cuda" else "gloo")
    torch.manual_seed(0)
    size, layers = (16, 3) if options.tiny else (1024, 8)
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(size, size), nn.GELU())]).to(options.device)
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=8)
    optimizer = torch.optim.SGD(parallel.parameters(), 1e-4)
    iterations = options.iterations or 200
    begin = time.perf_counter()
    for index in range(iterations):
        length = 256 * (1 + (index + rank) % 4)
        batch = torch.randn(length, size, pin_memory=options.device == "cuda").to(options.device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        if rank == RANKS - 1 and index >= options.slow_from:
            with torch.no_grad():
                for _ in range(options.repeat):
                    model(batch)
        parallel(batch).square().mean().backward()
        optimizer.step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps({"iterations": iterations, "ms": seconds * 1e3 / iterations,
                          "torch": torch.__version__,
                          "nccl": list(torch.cuda.nccl.version()) if options.device == "cuda" else None}), flush=True)


def main():
    if "RANK" not in os.environ:
        sys.exit(spawn())
    train(common.arguments(__doc__, slow_from=(100000, "first iteration in which the last rank is slow"),
                           repeat=(20, "forward passes more")))


if __name__ == "__main__":
    main()
