"""A BERT-like encoder with dynamic padding on the lengths of Alpaca; masked words."""
import json

import torch
from torch import nn

import common


class Encoder(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads):
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.places = nn.Embedding(1024, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, words):
        places = torch.arange(words.shape[1], device=words.device)
        hidden = self.layers(self.words(words) + self.places(places), src_key_padding_mask=words == 0)
        return self.out(hidden)


def make(row, index):
    rng = torch.Generator()
    rng.manual_seed(index)
    return torch.randint(2, 1000, (min(row[0], 1024),), generator=rng)


def collate(examples):
    words = nn.utils.rnn.pad_sequence(examples, batch_first=True)
    # Every seventh word is masked (1); its own word is the label.
    masked = words.clone()
    masked[:, ::7][words[:, ::7] != 0] = 1
    labels = torch.where(masked == 1, words, torch.full_like(words, -100))
    return masked, labels


def loss_of(model, batch):
    words, labels = batch
    return nn.functional.cross_entropy(model(words).flatten(0, 1), labels.flatten(), ignore_index=-100)


def main():
    options = common.arguments(__doc__)
    options.batch = options.batch or (4 if options.tiny else 64)
    hidden, layers, heads, vocabulary = (32, 2, 2, 1000) if options.tiny else (512, 6, 8, 30000)
    rows = common.epoch_lengths(options, "alpaca", 200 if options.tiny else 51922)
    model = Encoder(vocabulary, hidden, layers, heads).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    log = common.Log(options)
    common.train(options, log, common.loader(options, rows, make, collate), lambda batch: [batch[0].shape[1]],
                 model, optimizer, loss_of, options.iterations)
    print(json.dumps({"iterations": log.trained(), "train_ms": log.end(), "parameters":
                      sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
