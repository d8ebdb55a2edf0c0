"""A DeepSpeech2-like recogniser (convolutions, bidirectional GRUs, CTC) on the lengths of LibriSpeech."""
import json

import torch
from torch import nn

import common

CHARACTERS = 29


class Recogniser(nn.Module):
    def __init__(self, features, hidden, layers):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        self.recurrent = nn.GRU(32 * ((features + 3) // 4), hidden, layers, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, CHARACTERS)

    def forward(self, sound):
        # (batch, features, frames) -> (batch, frames / 2, characters)
        planes = self.convolutions(sound.unsqueeze(1))
        sequence = planes.flatten(1, 2).transpose(1, 2)
        return self.out(self.recurrent(sequence)[0]).log_softmax(-1)


class Make:
    def __init__(self, features):
        self.features = features

    def __call__(self, row, index):
        rng = torch.Generator()
        rng.manual_seed(index)
        frames = row[0]
        return (torch.randn(frames, self.features, generator=rng),
                torch.randint(1, CHARACTERS, (max(1, frames // 20),), generator=rng))


def collate(examples):
    sound = nn.utils.rnn.pad_sequence([s for s, _ in examples], batch_first=True).transpose(1, 2).contiguous()
    text = nn.utils.rnn.pad_sequence([t for _, t in examples], batch_first=True)
    return (sound, text, torch.tensor([len(s) for s, _ in examples]), torch.tensor([len(t) for _, t in examples]))


def loss_of(model, batch):
    sound, text, frames, characters = batch
    # Frames and characters per example stay on the host, as ctc_loss wants them.
    scores = model(sound)
    return nn.functional.ctc_loss(scores.transpose(0, 1), text, (frames + 1) // 2, characters, zero_infinity=True)


def main():
    options = common.arguments(__doc__)
    options.batch = options.batch or (4 if options.tiny else 32)
    features, hidden, layers = (32, 16, 1) if options.tiny else (161, 512, 3)
    rows = common.epoch_lengths(options, "librispeech", 160 if options.tiny else 28539)
    if options.tiny:
        rows = [(max(40, frames // 10),) for frames, in rows]
    model = Recogniser(features, hidden, layers).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    log = common.Log(options)
    for index, batch in enumerate(common.loader(options, rows, Make(features), collate)):
        if options.iterations and index >= options.iterations:
            break
        log.begin([batch[0].shape[2]], len(batch[0]))
        batch = (batch[0].to(options.device, non_blocking=True), batch[1].to(options.device, non_blocking=True),
                 batch[2], batch[3])
        optimizer.zero_grad(set_to_none=True)
        log.forward()
        loss = loss_of(model, batch)
        log.backward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        log.step()
        optimizer.step()
        if index % 50 == 49:
            loss.item()
    print(json.dumps({"iterations": log.trained(), "train_ms": log.end(), "parameters":
                      sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
