"""A GNMT-like LSTM translation model with attention, on the lengths of Multi30k."""
import itertools
import json

import torch
from torch import nn

import common


class Translator(nn.Module):
    def __init__(self, vocabulary, hidden, layers):
        super().__init__()
        self.source = nn.Embedding(vocabulary, hidden)
        self.target = nn.Embedding(vocabulary, hidden)
        self.first = nn.LSTM(hidden, hidden // 2, bidirectional=True, batch_first=True)
        self.encoder = nn.LSTM(hidden, hidden, layers - 1, batch_first=True)
        self.decoder = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.out = nn.Linear(2 * hidden, vocabulary)

    def forward(self, source, target):
        encoded, _ = self.encoder(self.first(self.source(source))[0])
        decoded, _ = self.decoder(self.target(target))
        scores = torch.bmm(decoded, encoded.transpose(1, 2)) / encoded.size(-1) ** 0.5
        scores = scores.masked_fill((source == 0).unsqueeze(1), float("-inf"))
        context = torch.bmm(torch.softmax(scores, -1), encoded)
        return self.out(torch.cat((decoded, context), -1))


def make(row, index):
    rng = torch.Generator()
    rng.manual_seed(index)
    return tuple(torch.randint(1, 1000, (length,), generator=rng) for length in row)


def collate(examples):
    return tuple(nn.utils.rnn.pad_sequence(side, batch_first=True) for side in zip(*examples))


def loss_of(model, batch):
    source, target = batch
    logits = model(source, target)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)


def main():
    options = common.arguments(__doc__, eval_every=(0, "evaluates after so many iterations"))
    options.batch = options.batch or (8 if options.tiny else 128)
    rows = common.epoch_lengths(options, "multi30k", 400 if options.tiny else 29000)
    # cross_entropy needs a second token.
    rows = [(source, max(target, 2)) for source, target in rows]
    hidden, layers, vocabulary = (32, 2, 1000) if options.tiny else (1024, 4, 32000)
    model = Translator(vocabulary, hidden, layers).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    log = common.Log(options)
    lengths_of = lambda batch: [batch[0].shape[1], batch[1].shape[1]]  # noqa: E731
    batches = common.loader(options, rows, make, collate)
    if not options.eval_every:
        common.train(options, log, batches, lengths_of, model, optimizer, loss_of, options.iterations)
    else:
        iterator = iter(batches)
        held = [collate([make(rows[i % len(rows)], 10**6 + i) for i in range(k * 8, k * 8 + 8)]) for k in range(5)]
        total = options.iterations or len(batches)
        while log.trained() < total:
            chunk = list(itertools.islice(iterator, min(options.eval_every, total - log.trained())))
            if not chunk:
                break
            common.train(options, log, chunk, lengths_of, model, optimizer, loss_of)
            model.eval()
            with torch.no_grad():
                for batch in held:
                    log.begin(lengths_of(batch), len(batch[0]), "evaluation")
                    log.forward()
                    loss_of(model, tuple(t.to(options.device) for t in batch)).item()
            model.train()
    print(json.dumps({"iterations": log.trained(), "train_ms": log.end(), "parameters":
                      sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
