"""Recordings of real PyTorch iterations; a stand-in for the injected library wants some lengths."""

import json
import os
import tempfile
import unittest

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"needs PyTorch: {error}")

from seqpoint_adapter.operators import MAX_DROPPED, MAX_LENGTHS, Recorder, _observer_class


class Library:
    def __init__(self):
        self.wanted = None  # lengths of the iteration that has begun
        self.distorted = 0
        self.messages = []

    def wants_operators(self):
        return self.wanted

    def distort(self):
        self.distorted += 1

    def operators(self, works, message):
        self.messages.append((works, message))


class OperatorsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.library = Library()
        self.observer = _observer_class(torch)
        register = self.observer.register_callback
        self.addCleanup(setattr, self.observer, "register_callback", register)
        self.recorder = Recorder(torch, self.library, self.folder)
        self.recorder.on_step(True)
        self.model = torch.nn.Linear(4, 4)

    def iterate(self, *lengths, ends=True, inside=lambda: None, **how):
        self.library.wanted = lengths
        self.recorder.on_begin(**{"on_host": True, "compiles": False, **how})
        inside()
        self.model(torch.ones(2, 4)).sum().backward()
        self.recorder.on_step(ends)

    def files(self):
        return sorted(os.listdir(self.folder))

    def names(self, file):
        """Of what a recording has."""
        with open(os.path.join(self.folder, file)) as opened:
            read = json.load(opened)
        if isinstance(read, dict):
            read = read.get("nodes") or read["traceEvents"]
        return [entry["name"] for entry in read]

    def test_each_length_once_in_two_iterations(self):
        for _ in range(3):
            self.iterate(5)
            self.iterate(7, 9)
        self.assertEqual(self.files(), ["5.graph.json", "5.times.json", "7x9.graph.json",
                                        "7x9.times.json"])
        for file in self.files():
            self.assertEqual(self.names(file).count("aten::linear"), 1, file)
        self.assertEqual(self.library.distorted, 4)
        self.assertEqual(self.library.messages[-1],
                         (True, f"those of 2 lengths are in {self.folder}"))

    def test_nothing_is_recorded_that_is_not_wanted(self):
        self.library.wanted = None
        self.recorder.on_begin(True, False)
        self.assertFalse(torch.autograd._profiler_enabled())
        self.assertEqual((self.files(), self.library.distorted), ([], 0))

    def test_a_model_of_one_length(self):
        self.iterate()
        self.iterate()
        self.assertEqual(self.files(), ["iteration.graph.json", "iteration.times.json"])

    def test_on_a_gpu_the_graph_alone(self):
        for _ in range(3):
            self.iterate(5, on_host=False)
        self.assertEqual(self.files(), ["5.graph.json"])
        self.assertIn("times on a GPU are not recorded", self.library.messages[-1][1])

    def test_steps_inside_of_an_iteration_do_not_end_it(self):
        self.iterate(5, ends=False)
        self.model(torch.ones(2, 4))
        self.recorder.on_step(True)
        self.iterate(5)
        self.assertEqual(self.names("5.graph.json").count("aten::linear"), 2)

    def test_a_step_that_was_not_seen_ends_with_the_next_iteration(self):
        for _ in range(2):
            self.iterate(5, ends=False)
            self.recorder.end()
        self.assertEqual(self.files(), ["5.graph.json", "5.times.json"])

    def test_the_program_records_itself(self):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as own:
            self.iterate(5)
        self.assertEqual(self.files(), [])
        self.assertGreater(len(own.events()), 0)
        # It begins where we record: ours comes to nothing, and its own is whole.
        self.iterate(5)
        self.iterate(5)
        path = os.path.join(self.folder, "own")
        observer = self.observer()

        def begin():
            observer.register_callback(path)
            observer.start()

        self.iterate(7, inside=begin)
        self.iterate(9)
        observer.unregister_callback()
        self.assertEqual(self.files(), ["5.graph.json", "5.times.json", "own"])
        self.assertEqual(self.names("own").count("aten::linear"), 2)
        self.iterate(9)
        self.iterate(9)
        self.assertIn("9.graph.json", self.files())

    def test_torch_compile(self):
        self.iterate(5, compiles=True)
        self.iterate(5)
        self.assertEqual(self.files(), [])
        self.assertIn("torch.compile", self.library.messages[0][1])

    def test_no_more_lengths_than_the_most(self):
        for _ in range(2):
            for length in range(1, MAX_LENGTHS + 5):
                self.iterate(length)
        self.assertEqual(len(self.files()), 2 * MAX_LENGTHS)

    def test_a_folder_that_cannot_be_written(self):
        self.recorder._folder = os.path.join(self.folder, "none")
        for _ in range(5):
            self.iterate(5)
        self.assertEqual(len(self.library.messages), 1)
        works, message = self.library.messages[0]
        self.assertFalse(works)
        self.assertIn("no more are recorded", message)
        self.assertFalse(torch.autograd._profiler_enabled())

    def test_iterations_of_several_passes(self):
        self.iterate(5, inside=self.recorder.on_pass)
        self.assertFalse(torch.autograd._profiler_enabled())
        self.iterate(5)  # like others: it is recorded
        self.iterate(5)
        self.assertEqual(self.files(), ["5.graph.json", "5.times.json"])
        for _ in range(30):
            self.iterate(7, inside=self.recorder.on_pass)
        self.assertIn("several forward passes", self.library.messages[-1][1])
        self.assertEqual(self.library.distorted, 2 + MAX_DROPPED)

    def test_a_graph_has_times_of_its_own_program(self):
        for _ in range(2):
            self.iterate(5)
        again = Recorder(torch, self.library, self.folder)
        again.on_step(True)
        self.recorder = again
        before = os.stat(os.path.join(self.folder, "5.graph.json")).st_ino
        self.iterate(5)  # the old pair stays whole until there is a new one
        self.assertEqual(os.stat(os.path.join(self.folder, "5.graph.json")).st_ino, before)
        self.iterate(5)
        self.assertNotEqual(os.stat(os.path.join(self.folder, "5.graph.json")).st_ino, before)
        self.assertEqual(len(self.files()), 2)

    def test_other_profilers_of_the_program(self):
        legacy = torch.autograd.profiler_legacy.profile

        def own():
            with legacy() as profile:
                self.model(torch.ones(2, 4))
            self.assertGreater(len(profile.function_events), 0)

        for _ in range(MAX_DROPPED + 4):
            self.iterate(5, inside=own)
        self.assertEqual(self.files(), [])
        self.assertEqual(self.library.distorted, MAX_DROPPED)
        self.assertIn("recorded by the program itself", self.library.messages[-1][1])

    def test_a_fork_within(self):
        def fork():
            child = os.fork()
            if child == 0:
                torch.relu(torch.ones(3))
                os._exit(0)
            os.waitpid(child, 0)

        for _ in range(2):
            self.iterate(5, inside=fork)
        self.assertEqual(self.files(), [])
        for _ in range(2):
            self.iterate(5)
        self.assertNotIn("aten::relu", self.names("5.graph.json"))

    def test_the_adapter_fails_within(self):
        self.iterate(5)
        self.iterate(5, ends=False)
        self.recorder.close()
        self.assertFalse(torch.autograd._profiler_enabled())
        self.iterate(5)
        self.assertFalse(any(file.endswith(".json") for file in self.files()))

    def test_the_program_ends_within(self):
        self.iterate(5)
        self.iterate(5, ends=False)
        self.recorder._on_exit()
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main()
