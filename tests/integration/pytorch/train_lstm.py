"""Trains an LSTM language model on sequences of given lengths, on the CPU: an ordinary PyTorch
program that knows nothing of the profiler.

  train_lstm.py --lengths train.csv [--log truth.jsonl]

--log writes, for each optimiser step, what the program itself saw: the padded length of its batch,
the batch size, the begin of its forward pass, the end of its step, and the begin of the next
forward pass ("end", which the last one does not have).
"""

import argparse
import csv
import json
import random
import time

import torch
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", required=True)
    parser.add_argument("--log")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start-method", default="fork")
    parser.add_argument("--max-iterations", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Messages(torch.utils.data.Dataset):
    VOCABULARY = 512

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        # Each token follows from the one before, so that there is something to learn.
        return (i * 31 + 7 * torch.arange(self.lengths[i] + 1)) % (self.VOCABULARY - 1) + 1


def pad(messages):
    return nn.utils.rnn.pad_sequence(messages, batch_first=True)


class LanguageModel(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(Messages.VOCABULARY, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, Messages.VOCABULARY)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.output(states)


def main():
    options = parse()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    with open(options.lengths, newline="") as file:
        lengths = [int(row["len_0"]) for row in csv.DictReader(file)]
    loader = torch.utils.data.DataLoader(
        Messages(lengths), options.batch, shuffle=True, collate_fn=pad,
        num_workers=options.workers,
        multiprocessing_context=options.start_method if options.workers else None)
    model = LanguageModel(options.hidden)
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    log = []
    losses = []

    def loss_of(tokens):
        logits = model(tokens[:, :-1])
        return criterion(logits.transpose(1, 2), tokens[:, 1:])

    def evaluate():
        model.eval()
        with torch.no_grad():
            for i in range(3):
                loss_of(pad([loader.dataset[j] for j in range(i, i + options.batch)]))
        model.train()

    steps = 0
    for _ in range(options.epochs):
        micro_batches = []
        for tokens in loader:
            if not micro_batches:
                begin = time.time_ns()
                if log and "end" not in log[-1]:
                    log[-1]["end"] = begin
            loss = loss_of(tokens)
            (loss / options.accumulate).backward()
            micro_batches.append(tokens.shape[1] - 1)
            if len(micro_batches) < options.accumulate:
                continue
            optimizer.step()
            stepped = time.time_ns()
            optimizer.zero_grad()
            losses.append(loss.item())
            steps += 1
            log.append({"iteration": steps - 1, "length": sum(micro_batches),
                        "batch": tokens.shape[0], "micro_batches": len(micro_batches), "begin": begin,
                        "stepped": stepped})
            micro_batches = []
            if options.eval_every and steps % options.eval_every == 0:
                log[-1]["end"] = time.time_ns()
                evaluate()
            if steps == options.max_iterations:
                break
        if steps == options.max_iterations:
            break
    print(f"{steps} steps, loss {sum(losses[:10]) / 10:.3f} -> {sum(losses[-10:]) / 10:.3f}")
    if options.log:
        with open(options.log, "w") as file:
            for line in log:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    random.seed(1)
    main()
