"""Tests of what the adapter tells of collectives, with a group of one rank in this process."""

import importlib.util
import os
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("needs PyTorch (python3-torch)")

import torch
import torch.distributed as distributed
from torch import nn

from seqpoint_adapter.collectives import Collectives


class Recorder:
    """What the adapter told."""

    def __init__(self):
        self.groups = []
        self.open = {}  # what ends it -> (group, function, type, elements, peer, sequence)
        self.told = []  # of those that ended
        self.messages = []
        self._count = 0

    def active(self):
        return True

    def text(self, text):
        return text

    def group(self, name, number, rank, ranks):
        self.groups.append((name, number, rank, ranks))
        return len(self.groups)

    def group_end(self, group):
        self.groups[group - 1] = None

    def collective_begin(self, *what):
        self._count += 1
        self.open[self._count] = what
        return self._count

    def collective_end(self, token):
        self.told.append(self.open.pop(token))

    def collectives(self, works, message):
        self.messages.append((works, message))


# One object serves all tests: its functions stay around PyTorch's.
RECORDER = Recorder()
COLLECTIVES = Collectives(torch, RECORDER)


@unittest.skipUnless(distributed.is_available() and hasattr(distributed, "ProcessGroupGloo"),
                     "this PyTorch has no gloo")
class CollectivesTest(unittest.TestCase):
    def setUp(self):
        RECORDER.__init__()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        distributed.init_process_group("gloo", init_method=f"file://{folder.name}/store", rank=0,
                                       world_size=1)
        self.addCleanup(lambda: distributed.is_initialized() and
                        distributed.destroy_process_group())

    def functions(self):
        return [told[1] for told in RECORDER.told]

    def test_a_call_ends_when_it_returns(self):
        distributed.all_reduce(torch.ones(3, 4))
        distributed.broadcast(torch.ones(5, dtype=torch.int64), 0)
        self.assertEqual(RECORDER.told, [(1, "AllReduce", "float32", 12, -1, 0),
                                         (1, "Broadcast", "int64", 5, -1, 1)])
        self.assertEqual(RECORDER.groups[0][2:], (0, 1))
        self.assertNotEqual(RECORDER.groups[0][1], 0)

    def test_one_that_runs_meanwhile_ends_when_it_is_waited_for(self):
        work = distributed.all_reduce(torch.ones(3), async_op=True)
        self.assertEqual(RECORDER.told, [])
        work.wait()
        work.wait()
        self.assertEqual(self.functions(), ["AllReduce"])
        kept = distributed.all_reduce(torch.ones(3), async_op=True)
        COLLECTIVES.on_step()
        self.assertEqual(len(RECORDER.told), 2, "a step uses what was reduced")
        kept.wait()
        self.assertEqual(len(RECORDER.told), 2)

    def test_every_function_is_seen_once(self):
        one, parts = torch.ones(2), [torch.ones(2)]
        distributed.all_gather([torch.ones(2)], one)
        distributed.gather(one, [torch.ones(2)])
        distributed.scatter(one, parts)
        distributed.reduce(one, 0)
        distributed.barrier()
        self.assertEqual(self.functions(), ["AllGather", "Gather", "Scatter", "Reduce", "Barrier"])
        self.assertEqual([told[3] for told in RECORDER.told], [2, 2, 2, 2, 0])
        self.assertEqual(RECORDER.open, {})

    def test_gradients_of_ddp_are_seen_and_end_with_the_backward_pass(self):
        model = nn.parallel.DistributedDataParallel(nn.Linear(30, 40))
        RECORDER.told.clear()
        expected = torch.autograd.grad(model.module(torch.ones(2, 30)).sum(),
                                       list(model.module.parameters()))
        loss = model(torch.ones(2, 30)).sum()
        self.assertEqual(RECORDER.told, [])
        loss.backward()
        self.assertEqual([told[1:5] for told in RECORDER.told],
                         [("AllReduce", "float32", 30 * 40 + 40, -1)])
        for parameter, gradient in zip(model.parameters(), expected):
            self.assertTrue(torch.equal(parameter.grad, gradient))

    def test_a_group_of_ddp_is_its_own(self):
        distributed.all_reduce(torch.ones(1))
        group = distributed.new_group([0])
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 4), process_group=group)
        RECORDER.told.clear()
        model(torch.ones(2, 3)).sum().backward()
        distributed.all_reduce(torch.ones(1), group=group)
        distributed.all_reduce(torch.ones(1))
        self.assertEqual([(told[0], told[5]) for told in RECORDER.told][-2:],
                         [(2, RECORDER.told[0][5] + 1), (1, RECORDER.told[-1][5])])
        self.assertEqual(RECORDER.told[0][0], 2)
        self.assertNotEqual(RECORDER.groups[0][1], RECORDER.groups[1][1])

    def test_what_fails_ends_and_the_error_is_the_programs(self):
        group, names = distributed.distributed_c10d._get_default_group(), []
        try:
            group.allreduce([torch.ones(2), torch.ones(2, dtype=torch.int64)])
        except Exception as error:
            trace = error.__traceback__
            while trace is not None:
                names.append(os.path.basename(trace.tb_frame.f_code.co_filename))
                trace = trace.tb_next
        if sys.version_info >= (3, 11):
            self.assertEqual(names, ["collectives_test.py"])
        self.assertEqual(self.functions(), ["AllReduce"])
        with self.assertRaises(Exception):
            group.allreduce([])
        self.assertEqual(RECORDER.open, {})
        distributed.all_reduce(torch.ones(2))
        self.assertEqual(self.functions(), ["AllReduce", "AllReduce"])

    def test_a_group_ends_with_the_programs(self):
        distributed.all_reduce(torch.ones(1))
        group = distributed.new_group([0])
        distributed.all_reduce(torch.ones(1), group=group)
        distributed.destroy_process_group(group)
        self.assertIsNotNone(RECORDER.groups[0])
        self.assertIsNone(RECORDER.groups[1])
        distributed.destroy_process_group()
        self.assertEqual(RECORDER.groups, [None, None])

    def test_a_message_says_that_they_are_seen(self):
        COLLECTIVES._message = "once more"
        COLLECTIVES.on_step()
        COLLECTIVES.on_step()
        self.assertEqual(RECORDER.messages, [(True, "once more")])


if __name__ == "__main__":
    unittest.main()
