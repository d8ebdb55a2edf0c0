#!/usr/bin/python3
"""How much longer a copy takes of a batch that another process has just loaded.

A batch comes from a DataLoader's process in shared memory that is newly mapped: who reads it first
has its pages mapped one by one, and the data come from memory, not from the own cache. Needs torch;
no GPU. Prints the time of the first and of the second copy of the same batch.
"""
import statistics
import time

import torch

BATCH, BATCHES = 32, 60


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        return torch.full((3, 224, 224), float(index))


def main():
    torch.set_num_threads(1)
    place = torch.zeros(BATCH, 3, 224, 224)
    first, second = [], []
    for batch in torch.utils.data.DataLoader(Images(), batch_size=BATCH, num_workers=1):
        time.sleep(0.1)  # the loader is done with the next one, too
        for times in (first, second):
            begin = time.perf_counter()
            place.copy_(batch)
            times.append(1e3 * (time.perf_counter() - begin))
    for name, of in (("least", min), ("median", statistics.median)):
        print(f"{name}: first {of(first):.2f} ms, second {of(second):.2f} ms, "
              f"ratio {of(first) / of(second):.2f}")


if __name__ == "__main__":
    main()
