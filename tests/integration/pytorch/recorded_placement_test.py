"""Placements of real models from their recordings: an LSTM encoder-decoder with attention and a
Transformer, on the CPU. What is recorded, and how, is docs/formats/operator-costs.md, "Recording"."""

import json
import os
import subprocess
import tempfile
import time
import unittest

try:
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile
except ImportError:
    torch = None

PLACE = os.path.join(os.environ.get("SEQPOINT_BUILD", "build/release"), "bin", "seqpoint-place")
WORDS, WIDTH, BATCH = 200, 64, 8
# Someone else's work between two readings of the clock is no fault of the recording.
TRIES = 5
MOST_MISSING = 0.02

if torch is not None:

    class Recurrent(nn.Module):
        """The decoder is a loop: its number of operators depends on the length."""

        def __init__(self):
            super().__init__()
            self.source = nn.Embedding(WORDS, WIDTH)
            self.target = nn.Embedding(WORDS, WIDTH)
            self.encoder = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
            self.decoder = nn.LSTMCell(2 * WIDTH, WIDTH)
            self.attention = nn.Linear(WIDTH, WIDTH, bias=False)
            self.out = nn.Linear(2 * WIDTH, WORDS)

        def forward(self, source, target):
            encoded, _ = self.encoder(self.source(source))
            keys = self.attention(encoded)
            h = c = context = torch.zeros(BATCH, WIDTH)
            outputs = []
            for word in self.target(target).unbind(1):
                h, c = self.decoder(torch.cat([word, context], 1), (h, c))
                shares = torch.softmax(torch.bmm(keys, h.unsqueeze(2)).squeeze(2), 1)
                context = torch.bmm(shares.unsqueeze(1), encoded).squeeze(1)
                outputs.append(self.out(torch.cat([h, context], 1)))
            return torch.stack(outputs, 1)

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.source = nn.Embedding(WORDS, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2)
            self.out = nn.Linear(WIDTH, WORDS)

        def forward(self, source, _):
            return self.out(self.layers(self.source(source)))


class Recorder:
    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.optimizer = torch.optim.Adam(model.parameters())
        self.loss = nn.CrossEntropyLoss()

    def iteration(self, length):
        source, target = torch.randint(0, WORDS, (2, BATCH, length))
        self.optimizer.zero_grad()
        self.loss(self.model(source, target).flatten(0, 1), target.flatten()).backward()
        self.optimizer.step()

    def record(self, length):
        """The recording as an argument of --trace, and the seconds that the iteration took."""
        graph, times = (os.path.join(self.folder, f"{kind}.{length}.json") for kind in ("et", "times"))
        for _ in range(2):
            self.iteration(length)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            begin = time.perf_counter()
            self.iteration(length)
            seconds = time.perf_counter() - begin
        profiler.export_chrome_trace(times)
        name = "ExecutionTraceObserver"
        if not hasattr(torch.profiler, name):
            name = "ExecutionGraphObserver"  # 1.13
        observer = getattr(torch.profiler, name)()
        observer.register_callback(graph)
        observer.start()
        self.iteration(length)
        observer.stop()
        observer.unregister_callback()
        return f"{graph},{times}@{length}", seconds


def place(*arguments):
    done = subprocess.run([PLACE, "--json", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


@unittest.skipIf(torch is None, "PyTorch is not installed")
@unittest.skipUnless(os.path.exists(PLACE), "seqpoint-place is not built")
class RecordedPlacementTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def check(self, model, lengths):
        recorder = Recorder(model, self.folder.name)
        traces = []
        for length in lengths:
            for attempt in range(TRIES):
                trace, seconds = recorder.record(length)
                answer = place("--trace", trace, "--devices", "1")
                # The loads add up to the iteration as the program's own clock has it.
                missing = abs(answer["value"] / 1e3 / seconds - 1)
                if missing <= MOST_MISSING:
                    break
                self.assertLess(attempt, TRIES - 1, f"{length}: {missing}")
            recording = answer["recordings"][0]
            self.assertAlmostEqual(recording["loads"], recording["iteration"], places=3)
            self.assertLess(recording["without_time"], 0.02 * recording["calls"])
            # Parameters, gradients and Adam's two states, and what the backward pass needs.
            parameters = sum(p.numel() * p.element_size() for p in model.parameters())
            self.assertGreater(answer["devices"][0]["memory_bytes"], 4 * parameters)
            self.assertLess(answer["devices"][0]["memory_bytes"], 20 * parameters)
            traces += ["--trace", trace]
        return traces, answer

    def check_plan(self, answer):
        placed = sorted(o for device in answer["devices"] for o in device["operators"])
        self.assertEqual(placed, sorted(operator["id"] for operator in answer["operators"]))
        self.assertLessEqual(answer["lower_bound"], answer["value"] * (1 + 1e-9))
        one = max(a["value"] for a in answer["alternatives"] if a["name"].startswith("one "))
        self.assertLess(answer["value"], 0.9 * one)

    def test_recurrence_has_one_graph_at_all_lengths(self):
        traces, longest = self.check(Recurrent(), [4, 12])
        self.assertFalse(longest["folded"])
        for pipeline in ("decoupled", "lockstep"):
            answer = place(*traces, "--devices", "2", "--pipeline", pipeline)
            self.assertTrue(answer["folded"])
            self.assertLess(len(answer["operators"]), 60)
            self.check_plan(answer)
            self.assertAlmostEqual(answer["value"], answer["pipelines"][pipeline], places=6)

    def test_transformer_keeps_its_operators(self):
        traces, longest = self.check(Transformer(), [8, 24])
        answer = place(*traces, "--devices", "2")
        self.assertFalse(answer["folded"])
        self.assertEqual(len(answer["operators"]), len(longest["operators"]))
        self.check_plan(answer)

    def test_lengths_of_two_models_are_refused(self):
        first, _ = Recorder(Transformer(), self.folder.name).record(8)
        second, _ = Recorder(Recurrent(), self.folder.name).record(9)
        done = subprocess.run([PLACE, "--trace", first, "--trace", second, "--devices", "2"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("length 8 and length 9 are of different models", done.stderr)
        mixed = second.split(",")[0] + "," + first.split(",")[1].split("@")[0]
        done = subprocess.run([PLACE, "--trace", mixed, "--devices", "2"], capture_output=True,
                              text=True, check=False)
        self.assertIn("of another program, or of another length", done.stderr)


if __name__ == "__main__":
    unittest.main()
