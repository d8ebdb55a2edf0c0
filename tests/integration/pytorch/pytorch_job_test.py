"""Unmodified PyTorch programs under `seqpoint run`, without a GPU: what the daemon says of them
beside what they saw themselves. SEQPOINT_BUILD names the build folder."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

# The programs import it; here it would take more than a second of each class.
if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("needs PyTorch (python3-torch)")

BUILD = os.environ["SEQPOINT_BUILD"]
HERE = os.path.dirname(os.path.abspath(__file__))
LSTM = os.path.join(HERE, "train_lstm.py")
SMALL = """
    import torch
    from torch import nn
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(64, 8)
            self.output = nn.Linear(8, 2)
        def forward(self, tokens):
            return self.output(self.embedding(tokens)).mean(dim=1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    def iterate(length, model=model):
        model(torch.zeros(4, length, dtype=torch.long)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


class JobTest(unittest.TestCase):
    """A daemon of its own for each test."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sqpt")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.daemon = subprocess.Popen(
            [f"{BUILD}/bin/seqpointd", "--dir", self.path("d"), "--store", self.path("store.db"),
             "--log", self.path("log")])
        self.addCleanup(self.daemon.wait)
        self.addCleanup(self.daemon.terminate)
        self.environment = dict(os.environ, SEQPOINT_DIR=self.path("d"))
        for name in ("PYTHONPATH", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
            self.environment.pop(name, None)
        deadline = time.monotonic() + 20
        while not os.path.exists(self.path("d/api.sock")):
            self.assertLess(time.monotonic(), deadline, "the daemon did not start")
            time.sleep(0.02)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(textwrap.dedent(text))
        return self.path(name)

    def write_lengths(self, examples):
        """Words of captions, drawn from the histogram of Multi30k."""
        subprocess.run([f"{BUILD}/bin/seqpoint_workload", "--histogram", "multi30k", "--examples",
                        str(examples), "--write-lengths", self.path("lengths.csv")], check=True)
        return self.path("lengths.csv")

    def run_program(self, *arguments, status=0, options=(), **environment):
        """Standard output of a Python program under the profiler."""
        done = subprocess.run(
            [f"{BUILD}/bin/seqpoint", "run", "--job", "job", *options, "--", sys.executable,
             *arguments],
            env={**self.environment, **environment}, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.output = done
        return done.stdout

    def script(self, text, **options):
        """Runs a program that begins with SMALL."""
        return self.run_program(
            self.write("program.py", textwrap.dedent(SMALL) + textwrap.dedent(text)), **options)

    def ask(self, *words):
        done = subprocess.run([f"{BUILD}/bin/seqpoint", *words, "--json"], env=self.environment,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def job(self):
        return self.ask("jobs", "job")["job"]

    def iterations(self):
        return self.ask("iterations", "job", "--all")["iterations"]

    def lengths(self):
        return [int(it["lengths"][0]) if it["lengths"] else None for it in self.iterations()]

    def train(self, *options, **environment):
        """Runs the LSTM and returns its own log."""
        with_log = [LSTM, "--log", self.path("log.jsonl"), *options]
        self.run_program(*with_log, **environment)
        with open(self.path("log.jsonl")) as file:
            return [json.loads(line) for line in file]

    def assertSameIterations(self, log):
        """Each iteration of the daemon is the program's own, begun inside it."""
        found = self.iterations()
        self.assertEqual([it["lengths"] for it in found], [[str(own["length"])] for own in log])
        for it, own, after in zip(found, log, log[1:] + [None]):
            self.assertLessEqual(own["begin"], int(it["boundary_ns"]))
            if after is not None:
                self.assertLess(int(it["boundary_ns"]), after["begin"])


class LstmTest(JobTest):
    def test_real_training_is_projected_as_it_was(self):
        lengths = self.write_lengths(1600)
        options = ("--lengths", lengths, "--batch", "16")
        with open(self.path("log.jsonl"), "w"):
            pass
        self.run_program(LSTM, "--lengths", lengths, "--log", self.path("log.jsonl"),
                         options=options)
        with open(self.path("log.jsonl")) as file:
            log = [json.loads(line) for line in file]
        self.assertEqual(len(log), 100)
        self.assertSameIterations(log)
        job = self.job()
        self.assertIn("tokens.shape[1]", job["rule"]["length"])
        self.assertEqual(int(job["time"]["iterations_total"]), 100)
        # The last iteration ends with its step; what the program did afterwards may be a part of
        # it.
        own = sum(it.get("end", it["stepped"]) - it["begin"] for it in log)
        self.assertAlmostEqual(int(job["iterations_duration_ns"]) / own, 1, delta=0.01)
        longest = max(it["end"] - it["begin"] for it in log[:-1])
        total = job["time"]["total"]
        self.assertAlmostEqual(total["value"] / own, 1, delta=0.01)
        self.assertLess(total["low"], 1.001 * own)
        self.assertLess(total["high"], 1.01 * own + 2 * longest)
        # What is never measured is not shown as if it were still to come.
        self.assertIn("does not use a GPU: time only", job["time_only"])
        self.assertIn("does not use a GPU: time only", self.output.stderr)
        self.assertNotIn("measured", self.output.stderr)
        for question in ("counters", "kernels"):
            done = subprocess.run([f"{BUILD}/bin/seqpoint", question, "job"], text=True,
                                  env=self.environment, capture_output=True, timeout=60)
            self.assertIn("have no CUPTI", done.stderr)

    def test_training_is_the_same_with_and_without(self):
        arguments = [LSTM, "--lengths", self.write_lengths(160)]
        alone = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        self.assertEqual(self.run_program(*arguments), alone.stdout)
        self.assertIn("10 steps, loss", alone.stdout)


class LoopsTest(JobTest):
    def test_micro_batches_add_up_and_evaluation_is_left_out(self):
        log = self.train("--lengths", self.write_lengths(640), "--batch", "8", "--accumulate", "4",
                         "--eval-every", "5")
        self.assertEqual(len(log), 20)
        self.assertSameIterations(log)
        self.assertIn("summed over micro-batches", self.job()["rule"]["length"])
        # What was evaluated lies between two iterations, in none.
        for it, own in zip(self.iterations(), log):
            if "end" in own:
                self.assertLess(int(it["boundary_ns"]) + int(it.get("duration_ns", 0)),
                                own["end"] + 50_000_000)

    def test_workers_that_are_forked_and_spawned(self):
        for method in ("fork", "spawn"):
            log = self.train("--lengths", self.write_lengths(320), "--workers", "4",
                             "--start-method", method)
            self.assertEqual(len(log), 20)
            self.assertSameIterations(log)
        jobs = self.ask("jobs")["jobs"]
        self.assertEqual([int(job["iterations"]) for job in jobs], [20, 20])
        self.assertEqual([int(job["process_count"]) for job in jobs], [1, 1])


class PassesTest(JobTest):
    """Passes without gradients: their time is in the figures, or said to be apart."""

    def passes(self, called, every):
        """Trains for 40 steps of some 5 ms with a phase of 10 ms before each `every`-th. Answers
        how long the iterations took in all, and what is apart, in ms."""
        self.script(f"""
            import copy, time
            class Sleeping(Model):
                def forward(self, tokens):
                    time.sleep(0.005)
                    return super().forward(tokens)
                def generate(self, tokens):
                    return self(tokens)
            class Wrapper(nn.Module):
                def __init__(self, module):
                    super().__init__()
                    self.module = module
                def forward(self, tokens):
                    return self.module(tokens)
            model = Wrapper(Sleeping())
            average = copy.deepcopy(model.module)
            optimizer = torch.optim.Adam(model.parameters())
            for n in range(40):
                if n % {every} == 0:
                    with torch.no_grad():
                        for _ in range(4):
                            {called}(torch.zeros(4, 5, dtype=torch.long))
                iterate(3 + n % 5, model)
        """)
        job = self.job()
        apart = {p["name"]: int(p["duration_ns"]) / 1e6 for p in job.get("phases", [])}
        return int(job["iterations_duration_ns"]) / 1e6, apart.get("evaluation", 0)

    def test_evaluation_is_apart_whoever_is_called(self):
        for called in ("model", "model.module", "average"):
            within, apart = self.passes(called, every=8)
            self.assertGreater(apart, 4 * 20, called)
            self.assertGreater(within, 40 * 5)

    def test_rollouts_are_in_the_figures_whoever_is_called(self):
        for called in ("model", "model.module.generate", "average"):
            within, apart = self.passes(called, every=1)
            self.assertEqual(apart, 0, called)
            self.assertGreater(within, 40 * 5 + 39 * 20)

    def test_sums_of_squares_are_the_length_where_time_goes_by_them(self):
        self.script("""
            import random, time
            class Packed(Model):
                def forward(self, tokens, cu_seqlens):
                    time.sleep(8e-8 * sum(n * n for n in lengths))
                    return super().forward(tokens)
            model = Packed()
            optimizer = torch.optim.Adam(model.parameters())
            draw = random.Random(1)
            for n in range(80):
                lengths = []
                while sum(lengths) < 2048:
                    lengths.append(min(int(draw.lognormvariate(5.5, 1)) + 1, 2048 - sum(lengths)))
                ends = torch.tensor([0, *lengths]).cumsum(0)
                model(torch.zeros(1, 2048, dtype=torch.long), ends).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if n == 79: print(sum(n * n for n in lengths))
        """)
        self.assertIn("sum of squares of cu_seqlens", self.job()["rule"]["length"])
        self.assertEqual(self.lengths()[-1], int(self.output.stdout))

    def test_lengths_that_are_told_are_shown_as_they_are(self):
        self.script("for n in range(40): iterate(8 * (3 + n % 5))")
        self.assertEqual(self.lengths(), [8 * (3 + n % 5) for n in range(40)])


class TurnsTest(JobTest):
    """Two models, trained in turn: what the user's lengths say of the run."""

    def gan(self, critic_steps, batches=80, own_batches=False, loaded=True):
        lengths = self.write("lengths.csv", "len_0\n" + "".join(
            f"{3 + n * n % 17}\n" * 4 for n in range(batches)))
        self.script(options=("--lengths", lengths, "--batch", "4", "--order", "file"),
                    text=f"""
            del optimizer  # it never steps
            torch.set_num_threads(1)
            critic, generator = Model(), Model()
            of_critic = torch.optim.RMSprop(critic.parameters())
            of_generator = torch.optim.Adam(generator.parameters())
            batches = [torch.zeros(4, 3 + n * n % 17, dtype=torch.long) for n in range({batches})]
            taken = iter(torch.utils.data.DataLoader(batches, batch_size=None) if {loaded} else
                         batches)
            for batch in taken:
                for _ in range({critic_steps}):
                    with torch.no_grad():
                        generator(batch)
                    (critic(torch.zeros_like(batch)) - critic(batch)).sum().backward()
                    of_critic.step()
                    of_critic.zero_grad()
                    if {own_batches}: batch = next(taken, batch)
                (generator(batch) + critic(batch)).sum().backward()
                of_generator.step()
                of_generator.zero_grad()
        """)

    def test_a_gan_has_as_many_iterations_as_batches(self):
        for critic_steps in (1, 2, 5):
            self.gan(critic_steps)
            self.assertEqual(len(self.iterations()), 80)
            self.assertEqual(int(self.job()["horizon"]["iterations"]), 80)
            self.assertFalse(self.job()["rule"]["message"])
            self.assertEqual(self.ask("project", "job")["projection"]["iterations_total"], "80")

    def test_a_gan_whose_critic_takes_batches_of_its_own_has_no_total_from_lengths(self):
        self.gan(2, batches=240, own_batches=True)
        self.assert_not_known()

    def test_nor_has_a_gan_whose_batches_nobody_counts(self):
        self.gan(2, loaded=False)
        self.assert_not_known()

    def assert_not_known(self):
        self.assertEqual(len(self.iterations()), 80)
        self.assertEqual(int(self.job()["horizon"].get("iterations", 0)), 0)
        self.assertIn("not known how many batches", self.job()["rule"]["message"])
        self.assertIn("--iterations", self.job()["rule"]["message"])


class ByHandTest(JobTest):
    def test_steps_that_the_program_makes_itself(self):
        self.script("""
            from torch.nn.utils.rnn import pack_sequence
            class Packed(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lstm = nn.LSTM(1, 8)
                def forward(self, packed):
                    return self.lstm(packed)[0].data
            model = Packed()
            for n in range(40):
                model(pack_sequence([torch.zeros(3 + n % 5, 1)] * 2)).sum().backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.1 * p.grad
                        p.grad = None
            import time
            time.sleep(1)  # saving the model
        """)
        self.assertEqual(self.lengths(), [3 + n % 5 for n in range(40)])
        # The last step is noticed when the program ends, but that is not its time.
        self.assertLess(int(self.job()["iterations_duration_ns"]), 1e9)
        self.assertIn("by hand", json.dumps(self.ask("jobs", "job")))

    def test_gradients_that_are_clipped_are_no_step(self):
        self.script("""
            model = Model()
            for n in range(40):
                for k in range(4):
                    model(torch.zeros(4, 3 + n % 5, dtype=torch.long)).sum().backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.1 * p.grad
                        p.grad.zero_()
        """)
        self.assertEqual(len(self.iterations()), 40)

    def test_steps_that_leave_no_trace_are_said(self):
        self.script("""
            for n in range(40):
                model(torch.zeros(4, 3 + n % 5, dtype=torch.long)).sum().backward()
                for p in model.parameters():
                    p.data.add_(p.grad.data, alpha=-0.1)
                    p.grad.data.zero_()
        """)
        said = " ".join(self.output.stderr.split())
        self.assertIn("backward passes", said)

    def test_two_lines_that_no_named_file_has(self):
        self.write("own/marks.py", """
            import ctypes; seqpoint = ctypes.CDLL(None)
            import time
            for n in range(40):
                time.sleep(0.001)
                if hasattr(seqpoint, "seqpoint_iteration_begin"):
                    seqpoint.seqpoint_attach(0)
                    seqpoint.seqpoint_iteration_begin(ctypes.c_int64(3 + n % 5))
        """)
        self.run_program("-m", "marks", PYTHONPATH=self.path("own"))
        self.assertEqual(self.lengths()[:39], [3 + n % 5 for n in range(39)])

    def test_a_loop_that_cannot_be_seen_is_told_in_two_lines(self):
        program = """
            import ctypes; seqpoint = ctypes.CDLL(None)
            import numpy
            weight = torch.zeros(3, requires_grad=True)
            for n in range(100):
                if {}:
                    length = numpy.int64(2**33 + 3 + n % 5)
                    seqpoint.seqpoint_attach(0)
                    seqpoint.seqpoint_iteration_begin(ctypes.c_int64(int(length)))
                (weight * torch.zeros(3 + n % 5, 3)).sum().backward()
        """
        self.script(program.format("False"))
        self.assertIn("seqpoint_iteration_begin", self.job()["error"])
        self.assertIn("seqpoint_iteration_begin", "".join(self.output.stderr.split()))
        self.script(program.format("hasattr(seqpoint, 'seqpoint_iteration_begin')"))
        self.assertGreaterEqual(len(self.iterations()), 99)  # the last one has no end
        self.assertGreater(int(self.iterations()[50]["duration_ns"]), 0)
        self.assertEqual(self.lengths()[50], 2**33 + 3)


class GuestTest(JobTest):
    def test_the_programs_own_sitecustomize_runs(self):
        self.write("own/sitecustomize.py", "import builtins\nbuiltins.own_customization = 7\n")
        out = self.run_program("-c", "import sys; print(own_customization, sys.path[1:3], "
                               "sys.modules['sitecustomize'].__file__)",
                               PYTHONPATH=self.path("own"))
        self.assertIn("7", out)
        self.assertIn(self.path("own"), out)
        self.assertNotIn("seqpoint/python", out)

    def test_what_keeps_the_adapter_out_is_said(self):
        self.assertEqual(self.run_program("-I", "-c", "print(1)"), "1\n")
        self.assertIn("started with -I", " ".join(self.output.stderr.split()))
        self.write("other/sitecustomize.py", "")
        again = ("import os, sys; 'AGAIN' in os.environ or os.execve(sys.executable, "
                 "[sys.executable, '-c', 'print(1)'], {**os.environ, 'AGAIN': '1', 'PYTHONPATH': "
                 f"{self.path('other')!r} + ':' + os.environ['PYTHONPATH']}})")
        self.assertEqual(self.run_program("-c", again), "1\n")
        self.assertIn("OpenTelemetry", self.output.stderr)

    def test_a_program_without_pytorch_is_no_process_of_the_job(self):
        self.assertEqual(self.run_program("-c", "print(1 + 1)"), "2\n")
        self.assertEqual(int(self.job().get("process_count", 0)), 0)

    def test_inference_alone_is_no_training(self):
        self.script("""
            with torch.no_grad():
                for length in range(3, 30):
                    model(torch.zeros(1, length, dtype=torch.long))
        """)
        self.assertEqual(int(self.job().get("process_count", 0)), 0)

    def test_the_adapter_can_be_left_out(self):
        self.script("for n in range(20): iterate(3 + n % 5)", SEQPOINT_ADAPTER="0")
        self.assertEqual(int(self.job().get("process_count", 0)), 0)

    def test_without_a_gpu_there_is_nothing_to_leave_to_torch_profiler(self):
        self.script("""
            with torch.profiler.profile():
                for n in range(20): iterate(3 + n % 5)
        """)
        self.assertEqual(len(self.iterations()), 20)
        self.assertEqual(self.job()["processes"][0]["stood_down_duration_ns"], "0")

    def test_subprocesses_of_the_program(self):
        out = self.script("""
            import subprocess, sys
            for n in range(20):
                iterate(3 + n % 5)
                if n % 10 == 0:
                    print(subprocess.check_output([sys.executable, "-c", "import torch; print(1)"]))
        """)
        self.assertEqual(out, "b'1\\n'\n" * 2)
        self.assertEqual(self.lengths(), [3 + n % 5 for n in range(20)])

    def test_models_that_are_made_anew_lose_no_iteration(self):
        self.script("""
            for fold in range(4):
                model = Model()
                optimizer = torch.optim.Adam(model.parameters())
                for n in range(10): iterate(3 + (fold + n * n) % 7, model)
        """)
        self.assertEqual(self.lengths(), [3 + (f + n * n) % 7 for f in range(4) for n in range(10)])

    def test_micro_batches_of_a_changing_number_add_up(self):
        batches = sum(1 + n * 7 % 5 for n in range(100))
        lengths = self.write("lengths.csv", "len_0\n" + "20\n30\n" * batches)
        options = ("--lengths", lengths, "--batch", "2")
        self.script(options=options, text="""
            torch.set_num_threads(1)
            model.embedding, model.output = nn.Embedding(64, 64), nn.LSTM(64, 64, batch_first=True)
            model.forward = lambda tokens: model.output(model.embedding(tokens))[0]
            optimizer = torch.optim.Adam(model.parameters())
            for n in range(100):
                for k in range(1 + n * 7 % 5):
                    model(torch.zeros(2, 5 + n * (k + 3) % 60, dtype=torch.long)).sum().backward()
                optimizer.step()
        """)
        self.assertEqual(len(self.iterations()), 100)
        self.assertIn("summed over micro-batches", self.job()["rule"]["length"])
        # Not learned anew, and as many iterations as the batches are enough for.
        self.assertIn("another number of micro-batches", self.job()["rule"]["message"])
        self.assertEqual(int(self.job()["horizon"]["iterations"]), 100)

    def test_a_run_of_two_steps_says_why_it_has_no_iterations(self):
        self.script("for n in range(2): iterate(3 + n)")
        self.assertIn("too few", self.job()["error"])

    def test_a_training_beside_another_of_its_rank_is_said_to_be_in_no_figure(self):
        self.script("""
            import os, subprocess, sys, time
            for n in range(20 if "CHILD" in os.environ else 200):
                iterate(3 + n % 5)
                time.sleep(0.01)  # the daemon finds the rule while this goes on
            if "CHILD" not in os.environ:
                subprocess.run([sys.executable, __file__], env={**os.environ, "CHILD": "1"},
                               check=True)
        """)
        self.assertEqual(int(self.job()["iterations"]), 200)
        self.assertEqual(len(self.iterations()), 220)
        self.assertIn("ran at the same time as another one of this rank", self.job()["error"])

    def test_what_passes_while_a_job_is_released_is_in_no_figure(self):
        self.script("""
            import os, subprocess, time
            def control(*words):
                return subprocess.run([os.environ["SEQPOINT"], "control", "job", *words],
                                      capture_output=True, text=True)
            for n in range(160):
                iterate(3 + n % 5)
                time.sleep(0.01)
                if n == 40: assert "do not use a GPU" in control("level", "trace").stderr
                if n == 80: assert control("release").returncode == 0
                if n == 120: assert control("resume").returncode == 0
        """, SEQPOINT=f"{BUILD}/bin/seqpoint")
        found = self.iterations()
        self.assertLess(len(found), 140)  # those in between were not seen
        longest = max(found, key=lambda it: int(it.get("duration_ns", 0)))
        self.assertTrue(longest["distorted"])  # and are not one long iteration
        self.assertIn("was released for a while", self.job()["rule"]["message"])

    def test_trainings_one_after_the_other_are_all_counted(self):
        # The second one's data is the same, and yet it resumes nothing.
        self.script("""
            import os, subprocess, sys
            if "CHILD" in os.environ:
                for n in range(30): iterate(3 + n * n % 17)
            else:
                for n in range(2):
                    subprocess.run([sys.executable, __file__], env={**os.environ, "CHILD": "1"},
                                   check=True)
        """)
        self.assertEqual(int(self.job()["iterations"]), 60)
        self.assertEqual(self.lengths(), [3 + n * n % 17 for n in range(30)] * 2)
        self.assertFalse(self.job()["error"])

    def test_of_trainings_at_once_one_is_in_the_figures(self):
        self.script("""
            import os, subprocess, sys, time
            if "CHILD" in os.environ:
                for n in range(60):
                    iterate(3 + n * n % 17)
                    # Neither ends before the other one trains.
                    trains = __file__ + ".trains."
                    open(trains + os.environ["CHILD"], "a").close()
                    while n == 30 and not all(os.path.exists(f"{trains}{c}") for c in range(2)):
                        time.sleep(0.005)
            else:
                children = [subprocess.Popen([sys.executable, __file__],
                                             env={**os.environ, "CHILD": str(n)}) for n in range(2)]
                for child in children: child.wait()
        """)
        self.assertEqual(int(self.job()["iterations"]), 60)
        self.assertEqual([int(p["iterations"]) for p in self.job()["processes"]], [60, 60])
        self.assertIn("ran at the same time as another one of this rank", self.job()["error"])

    def test_a_run_without_training_is_no_reason_to_ask_again(self):
        self.script("model(torch.zeros(4, 5, dtype=torch.long)).sum().backward()")
        done = subprocess.run([f"{BUILD}/bin/seqpoint", "project", "job"], env=self.environment,
                              capture_output=True, text=True, timeout=60)
        self.assertIn("ended without iterations: no process", done.stderr)
        self.assertIn("seqpoint doctor", done.stderr)

    def test_a_child_that_trains_itself(self):
        self.script("""
            import multiprocessing
            def train():
                for n in range(20): iterate(3 + n % 5)
            if __name__ == "__main__":
                child = multiprocessing.get_context("fork").Process(target=train)
                child.start()
                child.join()
        """)
        self.assertEqual(self.lengths(), [3 + n % 5 for n in range(20)])
        self.assertEqual(self.job()["state"], "JOB_STATE_ENDED")  # children end by os._exit


class EndsTest(JobTest):
    def ends(self, how, **options):
        out = self.script(f"""
            import os, signal, sys
            for n in range(20): iterate(3 + n % 5)
            print("trained", flush=True)
            {how}
        """, **options)
        self.assertIn("trained", out)
        self.assertEqual(self.lengths(), [3 + n % 5 for n in range(20)])

    def test_os_exit(self):
        for status, state in ((3, "JOB_STATE_FAILED"), (0, "JOB_STATE_ENDED")):
            self.ends(f"os._exit({status})", status=status)
            self.assertEqual(self.job()["state"], state)
            self.assertEqual(self.job()["exit_status"], status)

    def test_an_exception(self):
        self.ends("raise RuntimeError('mine')", status=1)
        self.assertIn("RuntimeError: mine", self.output.stderr)
        self.assertEqual(self.job()["state"], "JOB_STATE_FAILED")
        self.assertEqual(self.job()["exit_status"], 1)

    @unittest.skipIf(sys.version_info < (3, 11), "tracebacks cannot be changed before Python 3.11")
    def test_an_exception_inside_the_model_shows_nothing_of_the_adapter(self):
        self.ends("model(torch.zeros(3))", status=1)
        self.assertIn("Traceback", self.output.stderr)
        self.assertNotIn("seqpoint_adapter", self.output.stderr)

    def test_signals(self):
        for number, state in ((signal.SIGTERM, "JOB_STATE_LOST"),
                              (signal.SIGKILL, "JOB_STATE_FAILED"),
                              (signal.SIGSEGV, "JOB_STATE_FAILED")):
            self.ends(f"os.kill(os.getpid(), {int(number)})", status=-number)
            self.assertEqual(self.job()["state"], state)
            self.assertEqual(self.job()["signal"], int(number))
            self.assertNotIn("exit_status", self.job())

    def test_sys_exit_in_a_signal_handler(self):
        self.ends("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); "
                  "os.kill(os.getpid(), signal.SIGTERM); signal.pause()", status=5)


class OperatorsTest(JobTest):
    def recorded(self):
        """The folder of the job's recordings, and the files in it."""
        folders = [name for name in os.listdir(self.folder) if name.endswith(".operators")]
        self.assertEqual(len(folders), 1)
        return folders[0], sorted(os.listdir(self.path(folders[0])))

    def run_here(self, text):
        kept = os.getcwd()
        os.chdir(self.folder)
        try:
            self.script(text, options=("--operators",))
        finally:
            os.chdir(kept)

    def test_a_run_is_placed_by_what_it_recorded(self):
        # 5 and 8 often, 30 seldom: each is a SeqPoint.
        self.run_here("""
            torch.manual_seed(1)
            for n in range(200):
                iterate((5, 8, 5, 8, 30)[n % 5] if n % 2 else 5)
        """)
        folder, files = self.recorded()
        self.assertEqual(files, [f"{length}.{kind}.json" for length in (30, 5, 8)
                                 for kind in ("graph", "times")])
        job = self.job()
        self.assertEqual(os.path.basename(job["operators_folder"]), folder)
        # Those that were recorded are in no time, and nothing else is lost.
        self.assertEqual(sum(it["distorted"] for it in self.iterations()), 6)
        self.assertEqual(len(self.iterations()), 200)
        self.assertFalse(job["error"])
        answer = self.ask("place", "job", "--devices", "2")
        shares = {r["name"]: r["weight"] for r in answer["recordings"]}
        whole = sum(shares.values())
        lengths = self.lengths()
        for length in (5, 8, 30):
            self.assertAlmostEqual(shares[f"length {length}"] / whole,
                                   lengths.count(length) / 200, delta=0.05)
        placed = [o for device in answer["devices"] for o in device["operators"]]
        self.assertEqual(len(placed), len(answer["operators"]))

    def test_a_run_that_ends_early_leaves_nothing_behind(self):
        self.run_here("iterate(5)")
        self.assertFalse([name for name in os.listdir(self.folder) if "operators" in name])
        done = subprocess.run([f"{BUILD}/bin/seqpoint", "place", "job", "--devices", "2"],
                              env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended without iterations", done.stderr)

    def test_a_model_of_one_length(self):
        self.run_here("for n in range(1000): iterate(5)")
        self.assertEqual(len(self.recorded()[1]), 2)
        answer = self.ask("place", "job", "--devices", "2")
        self.assertEqual(len(answer["recordings"]), 1)

    def test_a_run_without_them_is_told_how(self):
        self.script("for n in range(30): iterate(5)")
        done = subprocess.run([f"{BUILD}/bin/seqpoint", "place", "job", "--devices", "2"],
                              env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("seqpoint run --operators", done.stderr)


class RanksTest(JobTest):
    def test_ranks_that_multiprocessing_spawns(self):
        import torch
        if not torch.distributed.is_available():
            self.skipTest("this PyTorch was built without torch.distributed")
        lengths = self.write("lengths.csv", "len_0\n" + "".join(
            f"{3 + n * n % 17}\n" for n in range(80)))
        self.script(options=("--lengths", lengths, "--batch", "1"), text="""
            import os, torch.distributed, torch.multiprocessing
            def train(rank, folder):
                torch.set_num_threads(1)
                torch.distributed.init_process_group(
                    "gloo", init_method=f"file://{folder}", rank=rank, world_size=2)
                parallel = nn.parallel.DistributedDataParallel(model)
                for n in range(rank, 80, 2):
                    iterate(3 + n * n % 17, parallel)
                torch.distributed.destroy_process_group()
            if __name__ == "__main__":
                torch.multiprocessing.spawn(train, (os.environ["STORE"],), 2)
        """, STORE=self.path("rendezvous"))
        job = self.job()
        self.assertEqual(sorted(p["rank"] for p in job["processes"]), [0, 1])
        self.assertEqual({p["world_size"] for p in job["processes"]}, {2})
        self.assertEqual(len(self.iterations()), 40)
        self.assertEqual(int(job["horizon"]["iterations"]), 40)
        self.assertFalse(job["error"])

    def test_torchrun(self):
        import torch
        if not torch.distributed.is_available():
            self.skipTest("this PyTorch was built without torch.distributed")
        program = self.write("program.py", textwrap.dedent(SMALL) + textwrap.dedent("""
            import torch.distributed
            torch.distributed.init_process_group("gloo")
            rank = torch.distributed.get_rank()
            parallel = nn.parallel.DistributedDataParallel(model)
            for n in range(30):
                iterate(3 + (n + rank) % 5, parallel)
            torch.distributed.destroy_process_group()
        """))
        # --tee: that of PyTorch 1.13 on Python 3.11 does not start without.
        self.run_program("-m", "torch.distributed.run", "--nproc_per_node=2", "--tee=1",
                         "--redirects=1", "--log_dir", self.path("logs"), "--rdzv_backend=c10d",
                         "--rdzv_endpoint=localhost:0", program)
        answer = self.ask("jobs", "job")
        self.assertEqual(sorted(p["rank"] for p in answer["job"]["processes"]), [0, 1])
        self.assertIn("the slowest of 2 ranks", answer["job"]["time"]["basis"])
        self.assertEqual(self.lengths(), [3 + n % 5 for n in range(30)])


if __name__ == "__main__":
    unittest.main()
