"""Real PyTorch training loops under the adapter; a recorder stands in for the injected library."""

import copy
import ctypes
import importlib
import io
import os
import pickle
import sys
import tempfile
import threading
import traceback
import types
import unittest
import warnings
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"needs PyTorch: {error}")

from torch import nn

from seqpoint_adapter import hooks, pytorch
from seqpoint_adapter import library as library_module


class Recorder:
    """What the adapter told, as ("forward", numbers by name), ("evaluation", ...), ("step",)."""

    def __init__(self, active=True):
        self.told = []
        self.messages = []
        self.attached = []
        self.ranks = []
        self.batches_told = []
        self.standing = []
        self._active = active

    def active(self):
        return self._active

    def attach(self, uses_gpu):
        self.attached.append(uses_gpu)
        self._active = True
        return 1

    def names(self, names):
        return names

    def forward(self, training, names, values, at_ns=0):
        kind = {1: "forward", 0: "evaluation", None: "beside"}[training]
        self.told.append((kind, dict(zip(names, values))))

    def step(self, at_ns):
        self.told.append(("step",))

    def rank(self, rank, size):
        self.ranks.append((rank, size))

    def batches(self, per_iteration, message):
        self.batches_told.append((per_iteration, message))

    def describe(self, works, message):
        self.messages.append((works, message))

    def stand_down(self, holder):
        self.standing.append(holder)

    def come_back(self):
        self.standing.append(None)

    # For the tests.
    def kinds(self):
        return [entry[0] for entry in self.told]

    def iterations(self):
        """Numbers of the forwards before each step, without evaluation."""
        iterations, open_ = [], []
        for kind, *numbers in self.told:
            if kind == "step":
                iterations.append(open_)
                open_ = []
            elif kind != "evaluation":
                open_.append(numbers[0])
        return iterations


class Model(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.output = nn.Linear(8, classes)

    def forward(self, tokens, *, mask=None):
        return self.output(self.lstm(self.embedding(tokens))[0]).mean(dim=1)


def tokens(length, batch=2):
    return torch.zeros(batch, length, dtype=torch.long)


class PickledSGD(torch.optim.SGD):
    pass


class PyTorchTest(unittest.TestCase):
    def setUp(self):
        self.recorder = Recorder()
        self.kept = (torch.optim.Optimizer.__init__, nn.Module.__call__)
        self.backward = torch.autograd.backward, torch.autograd.grad
        self.next = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
        self.hooks = getattr(torch.optim.Optimizer, "_hook_for_profile", None)
        self.scaler = pytorch._scalers(torch)[0]
        self.scaler_step = self.scaler.step
        profile = torch.autograd.profiler.profile
        self.profile = (profile._prepare_trace, profile.__exit__)
        graph = torch.cuda.CUDAGraph
        self.graph = (graph.capture_begin, graph.capture_end, graph.replay)
        distributed = torch.distributed
        self.distributed = distributed.init_process_group, distributed.destroy_process_group
        self.finders = list(sys.meta_path)
        self.adapter = pytorch.Adapter(torch, self.recorder)
        self.adapter.install()

    def tearDown(self):
        for owner in list(self.adapter._patched):
            self.adapter._restore(owner)
        torch.optim.Optimizer.__init__ = self.kept[0]
        (torch.distributed.init_process_group,
         torch.distributed.destroy_process_group) = self.distributed
        torch.autograd.backward, torch.autograd.grad = self.backward
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__ = self.next
        torch.optim.Optimizer._hook_for_profile = self.hooks
        self.scaler.step = self.scaler_step
        profile = torch.autograd.profiler.profile
        profile._prepare_trace, profile.__exit__ = self.profile
        graph = torch.cuda.CUDAGraph
        graph.capture_begin, graph.capture_end, graph.replay = self.graph
        sys.meta_path[:] = self.finders
        self.adapter._broken = True
        self.assertIs(nn.Module.__call__, self.kept[1])

    # A fresh optimiser class for each test: PyTorch hooks a class once.
    def sgd(self, parameters):
        return type("SGD", (torch.optim.SGD,), {})(parameters, lr=0.01)

    def train(self, model, lengths, optimizer=None):
        optimizer = optimizer or self.sgd(model.parameters())
        for length in lengths:
            model(tokens(length)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return optimizer

    def lengths(self):
        return [[numbers["tokens.shape[1]"] for numbers in iteration]
                for iteration in self.recorder.iterations()]

    def test_each_step_ends_an_iteration_from_the_first_on(self):
        self.train(Model(), [5, 7, 9, 7])
        self.assertEqual(self.lengths(), [[5], [7], [9], [7]])
        works, message = self.recorder.messages[0]
        self.assertTrue(works)
        self.assertIn("SGD", message)
        self.assertIn("Model", message)
        self.assertIn("tokens.shape[1]", message)

    def test_a_program_without_a_gpu_is_attached_at_its_first_step(self):
        self.recorder._active = False
        model = Model()
        with torch.no_grad():
            model(tokens(3))  # inference alone is no training
        self.assertEqual(self.recorder.attached, [])
        self.train(model, [5, 7])
        self.assertEqual(self.recorder.attached, [0])
        self.assertEqual(self.lengths(), [[5], [7]])

    def test_micro_batches(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for lengths in [(5, 6), (7, 8), (9, 3)]:
            for length in lengths:
                model(tokens(length)).sum().backward()
            optimizer.step()
        self.assertEqual(self.lengths(), [[5, 6], [7, 8], [9, 3]])

    def test_evaluation_ends_the_iteration_once_and_is_none(self):
        for grad_mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            model = Model()
            optimizer = self.train(model, [5])
            self.recorder.told.clear()
            model.eval()
            with grad_mode():
                for length in (2, 3, 4):
                    model(tokens(length))
            model.train()
            self.train(model, [6], optimizer)
            self.assertEqual(self.recorder.kinds(), ["evaluation", "forward", "step"], grad_mode)
            self.setUpAgain()

    def relatives(self):
        """A model that is wrapped for training, as DDP or PEFT does, and others of its kin."""

        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, tokens):
                return self.module(tokens)

        class Head(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model, self.value = model, nn.Linear(3, 1)

            def forward(self, tokens):
                return self.value(self.model(tokens))

        model = Model()
        root = Wrapper(Wrapper(Head(model)))
        return {"root": root, "module": root.module, "base": root.module.module, "inner": model,
                "copy": copy.deepcopy(root), "copy of the base": copy.deepcopy(model)}

    def test_evaluation_is_one_whoever_is_called(self):
        for who in self.relatives():
            relatives = self.relatives()
            root, evaluated = relatives["root"], relatives[who]
            optimizer = self.train(root, [5, 6])
            self.recorder.told.clear()
            for grad_mode in (torch.no_grad, torch.enable_grad):
                with grad_mode():
                    for length in (2, 3):
                        evaluated.eval()(tokens(length))
                root.train()
                evaluated.train()
                self.train(root, [7, 8], optimizer)
            self.assertEqual(
                self.recorder.kinds(),
                ["evaluation", "forward", "step", "forward", "step"] * 2, who)
            self.setUpAgain()

    def test_passes_without_gradients_before_each_step_begin_its_iteration(self):
        for who in self.relatives():
            relatives = self.relatives()
            root, actor = relatives["root"], relatives[who]
            optimizer = self.sgd(root.parameters())
            for length in range(3, 30):
                with torch.no_grad():
                    for _ in range(3):
                        actor(tokens(9))
                self.train(root, [length], optimizer)
            # Before the first iteration nobody knows them.
            self.assertEqual([k for k in self.recorder.kinds()[2:] if k != "evaluation"],
                             ["forward", "beside", "step"] * 26, who)
            self.assertEqual([[list(numbers.values())[1] for numbers in iteration if numbers]
                              for iteration in self.recorder.iterations()],
                             [[length] for length in range(3, 30)])
            # An evaluation would be among them, and the user is told so.
            self.assertIn("those of an evaluation among them", self.recorder.messages[-1][1])
            self.setUpAgain()

    def test_classes_of_pytorch_are_left_alone_unless_they_are_all_that_is_trained(self):
        class Network(nn.Module):
            def __init__(self, head):
                super().__init__()
                self.features = nn.Sequential(nn.Embedding(50, 30), nn.Linear(30, 20))
                if head:
                    self.head = nn.Linear(20, 2)

            def forward(self, tokens):
                return self.features(tokens)

        for head in (True, False):
            self.train(Network(head), [5, 6])
            self.assertEqual("__call__" in nn.Sequential.__dict__, not head)
            self.setUpAgain()

    def test_modules_inside_the_root_that_pass_as_a_part_of_it_are_nothing_else(self):
        relatives = self.relatives()
        self.train(relatives["root"], [5, 6, 7])
        self.assertEqual(self.recorder.kinds(), ["forward", "step"] * 3)

    def setUpAgain(self):
        self.tearDown()
        self.setUp()

    def test_a_model_that_trains_in_evaluation_mode_is_training(self):
        self.train(Model().eval(), [5, 6])
        self.assertEqual(self.lengths(), [[5], [6]])

    def test_the_loss_of_the_same_batch_without_gradients_is_no_micro_batch(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for length in (5, 6, 7):
            model(tokens(length)).sum().backward()
            with torch.no_grad():
                model(tokens(length))
            optimizer.step()
        self.assertEqual(self.lengths(), [[5], [6], [7]])
        self.assertNotIn("evaluation", self.recorder.kinds())

    def test_two_optimizers_of_one_model_are_one_iteration(self):
        model = Model()
        sparse = self.sgd(model.embedding.parameters())
        dense = torch.optim.AdamW(list(model.lstm.parameters()) + list(model.output.parameters()))
        for length in (5, 6, 7):
            model(tokens(length)).sum().backward()
            sparse.step()
            dense.step()
        self.assertEqual(self.lengths(), [[5], [6], [7]])

    def test_a_gan_is_one_iteration_for_both_of_its_steps(self):
        generator, critic = nn.Linear(4, 6), nn.Linear(6, 1)
        of_generator = self.sgd(generator.parameters())
        of_critic = torch.optim.Adam(critic.parameters())
        for batch in (3, 4, 5):
            noise = torch.zeros(batch, 4)
            critic(generator(noise).detach()).sum().backward()
            of_critic.step()
            critic(generator(noise)).sum().backward()
            of_generator.step()
        told = self.recorder.iterations()
        self.assertEqual(len(told), 3)
        for batch, iteration in zip((3, 4, 5), told):
            self.assertIn(batch, iteration[0].values())

    def train_gan(self, critic_steps, draw=lambda batch: batch, first="critic", loaded=True):
        """A GAN on batches of changing lengths, from a DataLoader or not; `draw`: the batch of a
        critic's step, for that of the iteration. Answers how many iterations were told after each,
        and what was said of the batches then."""
        generator, critic = Model(classes=50), Model()
        of_generator = self.sgd(generator.parameters())
        of_critic = self.sgd(critic.parameters())
        said = []

        def step_critic(batch):
            with torch.no_grad():
                generator(tokens(batch))
            loss = critic(tokens(batch)).sum() - critic(tokens(batch)).sum()
            loss.backward()
            of_critic.step()

        def step_generator(batch):
            generator(tokens(batch)).sum().backward()
            critic(tokens(batch)).sum().backward()
            of_generator.step()

        batches = [3 + n * n % 17 for n in range(60)]
        for batch in torch.utils.data.DataLoader(batches, batch_size=None) if loaded else batches:
            if first != "critic":
                step_generator(batch)
            for _ in range(critic_steps):
                step_critic(draw(batch))
            if first == "critic":
                step_generator(batch)
            told = self.recorder.batches_told
            said.append((self.recorder.kinds().count("step"), told[-1][0] if told else None))
        return said

    def test_a_gan_takes_a_batch_for_all_its_passes_and_says_so_when_it_is_proven(self):
        for critic_steps in (1, 2, 5):
            for first in ("critic", "generator"):
                with self.subTest(critic_steps=critic_steps, first=first):
                    said = self.train_gan(critic_steps, first=first)
                    self.assertEqual({per for _, per in said[2:10]}, {-1})
                    self.assertEqual(said[-1][1], 1, self.recorder.batches_told)
                    self.assertEqual(said[-1][0] - said[20][0], 39)  # an iteration each
                self.setUpAgain()

    def test_a_gan_whose_critic_takes_other_batches_is_not_known(self):
        loaded = iter(torch.utils.data.DataLoader(range(1000), batch_size=None))
        said = self.train_gan(5, draw=lambda _: 3 + next(loaded) * 7 % 23, loaded=False)
        self.assertEqual({per for _, per in said[1:]}, {-1})

    def test_a_gan_whose_batches_nobody_counts_is_not_known_whatever_their_lengths(self):
        said = self.train_gan(3, loaded=False)
        self.assertEqual({per for _, per in said[1:]}, {-1})

    def test_a_siamese_network_is_no_accumulation(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for n in range(60):
            (model(tokens(3 + n % 5)) - model(tokens(3 + n * n % 17))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(self.recorder.batches_told[-1][0], -1)

    def test_accumulation_is_accumulation(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for n in range(60):
            for k in range(4):
                model(tokens(3 + (n + k) ** 2 % 17)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(self.recorder.batches_told[-1][0], 0)

    def test_passes_of_one_length_are_accumulation_where_a_data_loader_gave_them(self):
        for taken, says in ((3, 0), (1, -1), (0, -1)):
            loaded = iter(torch.utils.data.DataLoader(range(1000), batch_size=None))
            model = Model()
            optimizer = self.sgd(model.parameters())
            for n in range(40):
                for k in range(3):
                    if k < taken: next(loaded)
                    model(tokens(5)).sum().backward()
                optimizer.step()
                with torch.no_grad():
                    next(loaded)  # of an evaluation
            self.assertEqual(self.recorder.batches_told[-1][0], says, taken)
            self.setUpAgain()

    def test_several_steps_on_a_batch_are_told_to_be_not_known(self):
        for steps, says in ((1, []), (4, [-1])):
            model = Model()
            optimizer = self.sgd(model.parameters())
            for batch in torch.utils.data.DataLoader(range(20), batch_size=None):
                for _ in range(steps):
                    self.train(model, [3 + batch * batch % 17], optimizer)
            self.assertEqual([per for per, _ in self.recorder.batches_told][:1], says)
            self.setUpAgain()

    def test_classes_of_the_program_see_no_read(self):
        seen = []

        class Own(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                seen.append(function)
                return super().__torch_function__(function, types, args, kwargs or {})

        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(1))

            def forward(self, own):
                return self.weight

        model = Plain()
        optimizer = self.sgd(model.parameters())
        own = torch.zeros(3, 5).as_subclass(Own)
        for _ in range(40):
            model(own).sum().backward()
            optimizer.step()
        self.assertEqual(seen, [])
        self.assertEqual(self.recorder.iterations()[-1][0], {"own.shape[0]": 3, "own.shape[1]": 5})

    def test_encoder_and_decoder_with_optimisers_of_their_own_are_one_training(self):
        encoder, decoder = Model(), Model()
        optimizers = [self.sgd(encoder.parameters()), self.sgd(decoder.parameters())]
        for n in range(60):
            (encoder(tokens(3 + n % 5)) + decoder(tokens(3 + n * n % 17))).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        self.assertEqual(self.recorder.kinds().count("step"), 60)
        self.assertEqual(self.recorder.batches_told, [])

    def test_two_models_in_phases_are_not_known_from_the_first_step_on(self):
        models = Model(), Model()
        optimizers = [self.sgd(model.parameters()) for model in models]
        said = set()
        for epoch in range(3):
            for model, optimizer in zip(models, optimizers):
                for n in range(30):
                    self.train(model, [3 + n * n % 17], optimizer)
                    if self.recorder.kinds().count("step"):
                        said.add(self.recorder.batches_told[-1][0])
        self.assertEqual(said, {-1})

    def test_steps_by_hand(self):
        def by_data(model, out):
            model.zero_grad()
            out.sum().backward()
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-0.1)
                p.grad = None

        def by_grad(model, out):
            gradients = torch.autograd.grad(out.sum(), list(model.parameters()))
            with torch.no_grad():
                for p, gradient in zip(model.parameters(), gradients):
                    p -= 0.1 * gradient

        def in_place(model, out):
            out.sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None

        for step in (in_place, by_data, by_grad):
            self.recorder._active = False
            model = Model()
            for n in range(20):
                step(model, model(tokens(3 + n % 5)))
                if n % 10 == 9:
                    with torch.no_grad():
                        model(tokens(40))
            self.adapter._on_exit()
            self.assertEqual(self.lengths(), [[3 + n % 5] for n in range(20)])
            self.assertEqual(self.recorder.attached, [0])
            self.assertIn("by hand", self.recorder.messages[0][1])
            self.assertEqual(self.recorder.batches_told, [])  # each pass has its own, as is usual
            self.setUpAgain()

    def test_accumulation_by_hand(self):
        model = Model()
        for n in range(20):
            for k in range(3):
                model(tokens(3 + (n + k) % 5)).sum().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
                for p in model.parameters():
                    p.grad = p.grad / 3
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad.zero_()
        self.adapter._on_exit()
        self.assertEqual(self.lengths(), [[3 + (n + k) % 5 for k in range(3)] for n in range(20)])

    def test_forward_passes_without_backward_passes_are_no_training(self):
        self.recorder._active = False
        model = Model()
        for n in range(200):
            model(tokens(3 + n % 5))
        self.assertEqual(self.recorder.attached, [])

    def test_backward_passes_that_no_step_follows_are_explained(self):
        self.recorder._active = False
        for differentiate in (lambda out, weight: out.backward(),
                              lambda out, weight: torch.autograd.grad(out, weight)):
            weight = torch.zeros(3, requires_grad=True)
            for n in range(100):
                differentiate((weight * 2).sum(), weight)
            works, message = self.recorder.messages[-1]
            self.assertFalse(works)
            self.assertIn("seqpoint_iteration_begin", message)
            self.setUpAgain()
            self.recorder._active = False

    def train_unseen(self, count):
        """Steps that leave no trace: through `data`, with gradients that are cleared in place."""
        model = Model()
        for n in range(count):
            model(tokens(3 + n % 5)).sum().backward()
            for p in model.parameters():
                p.data.add_(p.grad.data, alpha=-0.1)
                p.grad.data.zero_()

    def test_steps_that_cannot_be_seen_are_said_and_nothing_stays_replaced(self):
        self.recorder._active = False
        self.train_unseen(pytorch.UNEXPLAINED)
        self.assertIn("no step of an optimiser", self.recorder.messages[-1][1])
        self.assertIs(nn.Module.__call__, self.kept[1])
        self.assertEqual((torch.autograd.backward, torch.autograd.grad), self.backward)
        # An optimiser that comes later is seen.
        self.train(Model(), [5] * 10)
        self.assertIn([5], self.lengths())

    def test_a_short_program_is_said_to_have_unseen_steps_when_it_ends(self):
        for count, says in ((2, False), (40, True)):
            self.recorder._active = False
            self.train_unseen(count)
            self.adapter._on_exit()
            self.assertEqual(bool(self.recorder.messages), says)
            self.setUpAgain()

    def test_a_function_that_differentiates_can_be_scripted(self):
        def differentiate(x):
            return torch.autograd.grad([(x * x).sum()], [x])[0]

        x = torch.ones(2, requires_grad=True)
        self.assertEqual(torch.jit.script(differentiate)(x).tolist(), [2, 2])

    def test_tracebacks_of_the_program_do_not_show_the_adapter(self):
        if sys.version_info < (3, 11):
            self.skipTest("needs Python 3.11")

        class Failing(Model):
            fails = False

            def forward(self, tokens):
                if self.fails:
                    raise RuntimeError("mine")
                return super().forward(tokens)

        def frames(function, *arguments):
            try:
                function(*arguments)
            except Exception as error:
                return [f.name for f in traceback.extract_tb(error.__traceback__)], \
                    "".join(traceback.format_exception(error))
            self.fail("no exception")

        def closure():
            raise RuntimeError("mine")

        failing = Failing()
        failing.fails = True
        shown = [frames(failing, tokens(3))]  # while the root is looked for
        failing.fails = False
        optimizer = self.train(failing, [3, 4])
        failing.fails = True
        shown.append(frames(failing, tokens(3)))
        shown.append(frames(optimizer.step, closure))
        shown.append(frames(self.sgd, []))
        for names, text in shown:
            self.assertNotIn("seqpoint_adapter/pytorch.py", text)
        self.assertEqual(shown[0][0][-1], "forward")
        self.assertIn("closure", shown[2][0])

    def test_ranks_are_those_of_torch_distributed(self):
        distributed = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: len(self.recorder.told) > 12,
            get_rank=lambda: 1, get_world_size=lambda: 2)
        with mock.patch.dict(sys.modules, {"torch.distributed": distributed}):
            self.train(Model(), range(3, 40))
        self.assertEqual(self.recorder.ranks, [(1, 2)])

    def test_encoder_and_decoder_called_apart_tell_both_lengths(self):
        encoder, decoder = Model(), Model()
        optimizer = self.sgd([*encoder.parameters(), *decoder.parameters()])
        for source, target in [(5, 8), (6, 9), (7, 4)]:
            (encoder(tokens(source)) + decoder(tokens(target))).sum().backward()
            optimizer.step()
        for (source, target), iteration in zip([(5, 8), (6, 9), (7, 4)],
                                               self.recorder.iterations()):
            self.assertEqual(iteration[0]["tokens.shape[1]"], source)
            self.assertEqual(iteration[1]["Model.tokens.shape[1]"], target)

    def test_a_step_that_gradscaler_leaves_out_ends_an_iteration(self):
        self.assertTrue(hasattr(self.scaler.step, "__wrapped__"))

        class Scaler:  # PyTorch's own is at rest without a GPU
            def step(self, optimizer, overflow):
                return None if overflow else optimizer.step()

        self.adapter._wrap_scaler(Scaler)
        model = Model()
        optimizer = self.sgd(model.parameters())
        for length, overflow in [(5, False), (6, True), (7, False)]:
            model(tokens(length)).sum().backward()
            Scaler().step(optimizer, overflow)
        self.assertEqual(self.lengths(), [[5], [6], [7]])

    def left_out(self, leave_out):
        """Lengths of 40 iterations, of which `leave_out` leaves out three before the step."""
        model = Model()
        optimizer = self.sgd(model.parameters())
        for n in range(40):
            optimizer.zero_grad(set_to_none=True)
            loss = model(tokens(3 + n % 7)).sum()
            if n in (20, 21, 30) and leave_out(loss):
                continue
            loss.backward()
            optimizer.step()
        return self.lengths()

    def test_batches_that_are_dropped_before_or_behind_their_backward_pass_are_iterations(self):
        for leave_out in (lambda loss: True, lambda loss: loss.backward() or True):
            self.assertEqual(self.left_out(leave_out), [[3 + n % 7] for n in range(40)])
            self.setUpAgain()

    def test_a_step_left_out_where_gradients_are_kept_elsewhere(self):
        # As Megatron (main_grad) and DeepSpeed keep them, which return before the inner step.
        model = Model()
        optimizer = self.sgd(model.parameters())
        for n in range(40):
            model(tokens(3 + n % 7)).sum().backward()
            optimizer.zero_grad(set_to_none=True)
            if n not in (20, 30):
                optimizer.step()
        self.assertEqual(self.lengths(), [[3 + n % 7] for n in range(40)])

    def test_a_module_whose_class_changes_is_still_seen(self):
        model = Model()
        optimizer = self.train(model, [5, 6])
        # As FSDP2's fully_shard does it.
        model.__class__ = type("FSDPModel", (type("FSDPModule", (), {}), Model), {})
        self.train(model, [7, 8], optimizer)
        self.assertEqual(self.lengths(), [[5], [6], [7], [8]])

    def test_loops_that_pass_twice_in_each_iteration_are_not_cut(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for n in range(40):
            optimizer.zero_grad(set_to_none=True)
            (model(tokens(5)) - model(tokens(6))).sum().backward()
            optimizer.step()
        self.assertEqual(self.lengths(), [[5, 6]] * 40)

    def test_accumulation_that_begins_later_is_no_step_left_out(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for n in range(40):
            for _ in range(1 if n < 20 else 2):
                model(tokens(5)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.assertEqual(self.lengths(), [[5]] * 20 + [[5, 5]] * 20)

    def test_optimizers_that_never_step_join_no_iterations(self):
        class Outer(torch.optim.Optimizer):  # as SAM and Lookahead are made
            def __init__(self, inner):
                super().__init__(inner.param_groups, {})

        def of_the_same(model):
            return self.sgd(model.parameters()), lambda optimizer: Outer(optimizer)

        def of_another_stage(model):
            return self.sgd(model.parameters()), lambda _: self.sgd(Model().parameters())

        def of_a_parameter_without_gradients(model):
            model.unused = nn.Parameter(torch.zeros(1))
            return self.sgd([p for p in model.parameters() if p is not model.unused]), \
                lambda _: self.sgd([model.unused])

        for make in (of_the_same, of_another_stage, of_a_parameter_without_gradients):
            model = Model()
            optimizer, others = make(model)
            kept = others(optimizer)
            self.train(model, [5, 6, 7, 8], optimizer)
            self.assertEqual(self.lengths(), [[5], [6], [7], [8]], make.__name__)
            del kept
            self.setUpAgain()

    def test_one_optimizer_a_parameter_of_which_one_never_steps(self):
        model = Model()
        model.unused = nn.Parameter(torch.zeros(1))
        optimizers = [self.sgd([p]) for p in model.parameters()]
        for length in (5, 6, 7, 8):
            model(tokens(length)).sum().backward()
            for optimizer in optimizers:
                if optimizer.param_groups[0]["params"][0].grad is not None:
                    optimizer.step()
        self.assertEqual(self.lengths(), [[5], [6], [7], [8]])

    def test_a_closure_runs_the_model_inside_the_step(self):
        model = Model()
        optimizer = type("LBFGS", (torch.optim.LBFGS,), {})(model.parameters(), max_iter=3)
        for length in (5, 6):
            def closure():
                optimizer.zero_grad()
                loss = model(tokens(length)).square().sum()
                loss.backward()
                return loss
            optimizer.step(closure)
        self.assertEqual([set(iteration) for iteration in self.lengths()], [{5}, {6}])

    def test_a_closure_that_runs_more_often_later_leaves_out_no_step(self):
        model = Model()
        optimizer = type("LBFGS", (torch.optim.LBFGS,), {})(model.parameters(), max_iter=1)
        for n in range(30):
            def closure():
                optimizer.zero_grad(set_to_none=True)
                loss = model(tokens(3 + n)).square().sum()
                loss.backward()
                return loss
            optimizer.param_groups[0].update(max_iter=1 if n < 15 else 3, max_eval=4)
            optimizer.step(closure)
        self.assertEqual([set(iteration) for iteration in self.lengths()],
                         [{3 + n} for n in range(30)])
        self.assertGreater(max(map(len, self.lengths())), 1)

    def test_a_step_that_calls_its_parents_counts_once(self):
        class Parent(torch.optim.SGD):
            pass

        class Child(Parent):
            @torch.no_grad()
            def step(self, closure=None):
                return super().step(closure)

        Parent(Model().parameters(), lr=0.1)  # so that the parent's step is watched, too
        model = Model()
        self.train(model, [5, 6], Child(model.parameters(), lr=0.1))
        self.assertEqual(self.lengths(), [[5], [6]])

    def test_wrappers_are_the_root(self):
        self.train(nn.DataParallel(Model()), [5, 6])
        self.assertEqual(self.lengths(), [[5], [6]])
        self.assertIn("DataParallel", self.recorder.messages[0][1])

    def test_copies_and_pickles_of_the_model_hold_nothing_of_ours(self):
        model = Model()
        optimizer = self.train(model, [5, 6], PickledSGD(model.parameters(), lr=0.1))
        average = copy.deepcopy(model)
        with torch.no_grad():
            self.assertTrue(torch.equal(average(tokens(3)), model(tokens(3))))
        written = pickle.dumps((model, optimizer))
        self.assertFalse(b"seqpoint" in written.replace(__name__.encode(), b""))
        torch.save(model, io.BytesIO())
        count = len(self.recorder.told)
        average(tokens(4))
        self.assertEqual(len(self.recorder.told), count)

    def test_a_class_that_is_pickled_with_its_functions_works_where_it_is_read(self):
        class Scripted(Model):
            pass

        model = Scripted()
        optimizer = self.train(model, [5, 6])

        def written_and_read(function):  # as cloudpickle does with what it finds in a class
            cells = [Scripted if cell.cell_contents is Scripted
                     else pickle.loads(pickle.dumps(cell.cell_contents))
                     for cell in function.__closure__]
            return types.FunctionType(function.__code__, {}, None, None,
                                      tuple(map(types.CellType, cells)))

        self.recorder.told.clear()
        call = written_and_read(Scripted.__dict__["__call__"])
        self.assertEqual(call(model, tokens(7)).shape, (2, 3))
        step = type(optimizer).step
        if hasattr(step, "seqpoint"):  # PyTorch 1.x
            inner = step.__closure__[step.__code__.co_freevars.index("original")].cell_contents
            read = types.FunctionType(step.__code__, {}, None, None, tuple(
                types.CellType(cell.cell_contents if cell.cell_contents is inner
                               else pickle.loads(pickle.dumps(cell.cell_contents)))
                for cell in step.__closure__))
            read(optimizer)
        self.assertEqual(self.recorder.told, [])

    def test_the_model_is_not_kept_alive(self):
        import gc
        import weakref
        model = Model()
        self.train(model, [5, 6])
        alive = weakref.ref(model)
        del model
        gc.collect()
        self.assertIsNone(alive())

    def test_another_model_is_found_when_it_is_trained_next(self):
        self.train(Model(), [5, 6])
        self.train(nn.Sequential(Model()), [7] * 8)
        lengths = [list(n.values())[1] for it in self.recorder.iterations() for n in it]
        self.assertEqual(lengths[:2], [5, 6])
        self.assertGreaterEqual(lengths.count(7), 4)

    def test_a_model_that_is_made_anew_loses_no_iteration(self):
        for fold in range(3):
            self.train(Model(), [5 + fold] * 4)
        self.assertEqual(self.lengths(), [[5]] * 4 + [[6]] * 4 + [[7]] * 4)
        self.assertEqual(len(self.recorder.messages), 1)

    def test_another_optimizer_of_the_same_model_changes_nothing(self):
        model = Model()
        self.train(model, [5, 6])
        self.train(model, [7, 8])
        self.assertEqual(self.lengths(), [[5], [6], [7], [8]])
        self.assertEqual(len(self.recorder.messages), 1)

    def test_what_modules_beside_the_root_tell_is_said_with_their_class(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        model.output(model.embedding(tokens(5))).sum().backward()
        optimizer.step()
        self.assertIn("Linear.input.shape[0]", self.recorder.messages[0][1])

    def test_inputs_of_another_shape_are_read_anew(self):
        class Either(Model):
            def forward(self, tokens):
                return super().forward(tokens["ids"] if isinstance(tokens, dict) else tokens)
        model = Either()
        optimizer = self.sgd(model.parameters())
        for batch in (tokens(5), {"ids": tokens(6)}, tokens(7)):
            model(batch).sum().backward()
            optimizer.step()
        self.assertEqual([sorted(iteration[0]) for iteration in self.recorder.iterations()],
                         [["tokens.shape[0]", "tokens.shape[1]"],
                          ["tokens['ids'].shape[0]", "tokens['ids'].shape[1]"],
                          ["tokens.shape[0]", "tokens.shape[1]"]])

    def test_a_program_that_compiles_is_not_traced_through(self):
        # As torch.compile does from 2.0 on: from then on nn.Module.__call__ must be PyTorch's own.
        self.adapter._on_compile()
        self.assertIs(nn.Module.__call__, self.kept[1])
        self.train(Model(), [5, 6, 7, 8])
        self.assertEqual(self.lengths()[1:], [[6], [7], [8]])

    def test_a_container_that_is_never_called_gives_way_to_what_it_holds(self):
        class Holder(nn.Module):  # as a LightningModule, whose training_step is called
            def __init__(self):
                super().__init__()
                self.model = Model()
        self.adapter._on_compile()
        holder = Holder()
        optimizer = self.sgd(holder.parameters())
        for length in (5, 6, 7, 8):
            holder.model(tokens(length)).sum().backward()
            optimizer.step()
        self.assertEqual(self.lengths()[-2:], [[7], [8]])

    def test_a_step_made_in_parts_ends_one_iteration(self):
        # As DeepSpeed's ZeRO makes it: once for each group, with only that group in the optimiser;
        # and for all of them before the training begins.
        model = Model()
        optimizer = self.sgd([{"params": [p]} for p in model.parameters()])

        def step():
            groups = optimizer.param_groups
            for group in groups:
                optimizer.param_groups = [group]
                optimizer.step()
            optimizer.param_groups = groups

        step()
        for length in (5, 6, 7):
            model(tokens(length)).sum().backward()
            step()
        self.assertEqual(self.lengths(), [[], [5], [6], [7]])
        self.assertEqual([works for works, _ in self.recorder.messages], [True])

    def test_a_step_in_parts_of_a_compiled_program(self):
        self.adapter._on_compile()
        parameters = [nn.Parameter(torch.zeros(1)) for _ in range(5)]
        optimizer = self.sgd([{"params": [p]} for p in parameters])
        groups = optimizer.param_groups
        for _ in range(6):
            for group in groups:
                optimizer.param_groups = [group]
                optimizer.step()
        self.assertEqual(self.recorder.kinds(), ["step"] * 6)

    def test_steps_before_the_training_do_not_end_the_search(self):
        model = Model()
        optimizer = self.sgd(model.parameters())
        for _ in range(10):
            optimizer.step()
        self.train(model, [5, 6], optimizer)
        self.assertEqual(self.lengths()[-2:], [[5], [6]])
        self.assertTrue(self.recorder.messages[-1][0])

    def test_a_program_without_modules_is_said_so_and_looked_at_again(self):
        weight = nn.Parameter(torch.zeros(1))
        optimizer = self.sgd([weight])
        for _ in range(pytorch.SEARCHED_STEPS + 1):
            optimizer.step()
        self.assertIs(nn.Module.__call__, self.kept[1])
        self.assertEqual([works for works, _ in self.recorder.messages], [False])
        self.assertEqual(self.recorder.kinds(), ["step"] * (pytorch.SEARCHED_STEPS + 1))
        model = Model()
        self.train(model, [5] * 10 * pytorch.LOST_AFTER, optimizer)
        self.assertTrue(self.recorder.messages[-1][0])

    def test_modules_that_run_again_in_the_backward_pass_are_not_beside_the_root(self):
        from torch.utils.checkpoint import checkpoint

        class Checkpointed(Model):
            def forward(self, tokens):
                hidden = self.embedding(tokens)
                again = checkpoint(lambda x: self.output(x), hidden, use_reentrant=False)
                return again.sum()

        self.train(Checkpointed(), [5, 6, 7])
        self.assertEqual(self.lengths(), [[5], [6], [7]])
        self.assertNotIn("__call__", nn.Linear.__dict__)

    def test_a_class_and_its_base_are_told_once(self):
        class Larger(Model):
            pass

        small, large = Model(), Larger()
        optimizer = self.sgd([*small.parameters(), *large.parameters()])
        for length in (5, 6, 7):
            (small(tokens(length)) + large(tokens(length))).sum().backward()
            optimizer.step()
        self.assertEqual([len(iteration) for iteration in self.recorder.iterations()], [2, 2, 2])

    def test_symbolic_tracing_sees_the_modules_of_a_watched_class(self):
        linear = nn.Linear(4, 4)
        optimizer = self.sgd(linear.parameters())
        for _ in range(3):
            linear(torch.zeros(2, 4)).sum().backward()
            optimizer.step()
        self.assertIn("__call__", nn.Linear.__dict__)

        class Holder(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                return self.linear(x)

        nodes = torch.fx.symbolic_trace(Holder()).graph.nodes
        self.assertIn("call_module", [node.op for node in nodes])

    def test_modules_that_are_not_made_yet_are_passed_over(self):
        unmade = Model.__new__(Model)
        self.adapter._on_compile()
        self.train(Model(), [5, 6, 7])
        self.assertEqual(self.lengths()[1:], [[6], [7]])
        del unmade

    def test_iterations_that_are_replayed_from_a_cuda_graph(self):
        class Graph:
            def capture_begin(self):
                pass

            def capture_end(self):
                pass

            def replay(self):
                replayed.append(len(adapter_told()))

        def adapter_told():
            return self.recorder.told

        replayed = []
        self.adapter._wrap_graph(Graph)
        model = Model()
        optimizer = self.train(model, [5])
        whole, part = Graph(), Graph()
        whole.capture_begin()
        self.train(model, [6], optimizer)
        whole.capture_end()
        part.capture_begin()
        with torch.no_grad():
            model(tokens(7))
        part.capture_end()
        self.recorder.told.clear()
        for _ in range(3):
            whole.replay()
            part.replay()
        self.assertEqual(self.lengths(), [[6]] * 3)
        self.assertEqual(self.recorder.kinds(), ["forward", "step"] * 3)
        self.assertEqual(replayed[:2], [1, 2])  # between the forward and the step

    def test_passes_that_are_replayed_from_a_cuda_graph_whose_step_comes_later(self):
        class Graph:
            def capture_begin(self):
                pass

            def capture_end(self):
                pass

            def replay(self):
                pass

        self.adapter._wrap_graph(Graph)
        model = Model()
        optimizer = self.train(model, [5, 5])
        graph, inner = Graph(), Graph()
        for captured, length in ((graph, 6), (inner, 7)):
            captured.capture_begin()
            model(tokens(length)).sum().backward()
            captured.capture_end()
            optimizer.step()
        self.recorder.told.clear()
        for passes in (1, 2, 1):
            for _ in range(passes):
                graph.replay()
            optimizer.step()
        for _ in range(2):  # the model is called, and replays by itself
            model(tokens(7))
            inner.replay()
            optimizer.step()
        self.assertEqual(self.lengths(), [[6], [6, 6], [6], [7], [7]])
        self.assertTrue(all(works for works, _ in self.recorder.messages))

    # PyTorch 2.x, by what is different of it.

    def test_the_global_hook_of_2_x(self):
        hooks = []
        self.tearDown()
        with mock.patch.object(importlib.import_module("torch.optim.optimizer"),
                               "register_optimizer_step_post_hook", hooks.append, create=True):
            self.setUp()
        (hook,) = hooks
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for length in (5, 6):
            model(tokens(length)).sum().backward()
            optimizer.step()
            hook(optimizer, (), {})
        self.assertEqual(self.lengths(), [[5], [6]])

    def test_the_hook_cuts_a_compiled_step_unless_nothing_may_be_cut(self):
        hook = self.adapter._hook
        self.assertTrue(hook._torchdynamo_disable)
        self.adapter._on_compile(Model(), fullgraph=True)
        self.assertTrue(hook._torchdynamo_disable)
        self.adapter._on_compile(lambda: None, fullgraph=True)
        self.assertFalse(hasattr(hook, "_torchdynamo_disable"))

    def test_what_torch_compile_traces_does_nothing_of_ours(self):
        tracing = [False]
        with mock.patch.object(torch, "compiler", types.SimpleNamespace(
                is_compiling=lambda: tracing[0]), create=True):
            self.setUpAgain()
            model = Model()
            optimizer = self.train(model, [5])
            tracing[0] = True
            self.recorder.told.clear()
            model(tokens(6))
            self.adapter._hook(optimizer, (), {})
            self.assertEqual(self.recorder.told, [])

    def test_torch_compile_is_wrapped_and_its_machinery_sees_pytorchs_own_call(self):
        noted = []
        self.tearDown()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(
                torch, "compile", lambda model=None, **_: noted.append(nn.Module.__call__) or model,
                create=True), mock.patch.object(torch, "__path__", [*torch.__path__, folder]):
            with open(os.path.join(folder, "_dynamo.py"), "w") as file:
                file.write("import torch\nnoted = torch.nn.Module.__call__\n")
            self.setUp()
            searching = nn.Module.__call__
            self.assertIsNot(searching, self.kept[1])
            with mock.patch.object(sys, "dont_write_bytecode", True):
                dynamo = importlib.import_module("torch._dynamo")
            self.assertIs(dynamo.noted, self.kept[1])
            self.assertIsNot(nn.Module.__call__, self.kept[1])  # the search goes on
            model = Model()
            self.assertIs(torch.compile(model, fullgraph=True), model)
            self.assertEqual(noted, [self.kept[1]])
            del sys.modules["torch._dynamo"], torch._dynamo
        self.train(model, [5, 6, 7])
        self.assertEqual(self.lengths()[1:], [[6], [7]])

    def test_torch_compile_leaves_our_frames_alone(self):
        skipped = []
        hooks.leave_uncompiled(types.SimpleNamespace(
            eval_frame=types.SimpleNamespace(skip_code=skipped.append)))
        names = {code.co_name for code in skipped}
        self.assertLessEqual({"call", "hook", "wrapped", "_on_call", "read", "ends", "forward"},
                             names)

    def test_a_failure_of_ours_ends_the_adapter_not_the_program(self):
        model = Model()
        optimizer = self.train(model, [5])
        self.recorder.forward = None  # not callable
        self.train(model, [6, 7], optimizer)
        works, message = self.recorder.messages[-1]
        self.assertFalse(works)
        self.assertIn("failed", message)
        self.assertNotIn("__call__", Model.__dict__)

    def test_an_exception_of_the_program_is_its_own(self):
        class Failing(Model):
            def forward(self, tokens):
                raise ValueError("mine")
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "mine"):
                Failing()(tokens(3))
        self.train(Model(), [5, 6])
        self.assertEqual(self.lengths()[-1], [6])

    def test_a_traced_model_is_left_alone(self):
        model = Model()
        optimizer = self.train(model, [5])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.trace(model, (tokens(4),), check_trace=False)
        self.train(model, [6], optimizer)
        self.assertTrue(all(works for works, _ in self.recorder.messages))

    def test_threads_of_a_program_do_not_disturb(self):
        model = Model()
        optimizer = self.train(model, [5])
        side = Model()
        threads = [threading.Thread(target=lambda: side(tokens(9))) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.train(model, [6] * 20, optimizer)
        for thread in threads:
            thread.join()
        self.assertEqual(self.lengths(), [[5]] + [[6]] * 20)

    def test_the_root_is_found_while_another_thread_is_inside_a_module(self):
        inside, leave = threading.Event(), threading.Event()

        class Waiting(nn.Module):
            def forward(self):
                inside.set()
                leave.wait(10)

        thread = threading.Thread(target=Waiting())
        thread.start()
        inside.wait(10)
        self.train(Model(), [5, 6])
        leave.set()
        thread.join()
        self.assertEqual(self.lengths(), [[5], [6]])

    def test_numbers_of_two_threads_are_not_mixed(self):
        told, both = {}, threading.Barrier(2)

        class Handle:  # of the library: a call that takes a while
            def __getattr__(self, name):
                def function(*arguments):
                    if name == "seqpoint_forward":
                        both.wait(10)
                        count, at = arguments[1], arguments[3]
                        told[threading.get_ident()] = list((ctypes.c_int64 * count).from_address(at))
                return function

        library = library_module.Library(Handle())
        expected = {}

        def tell(values):
            expected[threading.get_ident()] = values
            library.forward(1, library.names(("a", "b")), values)

        threads = [threading.Thread(target=tell, args=([n, n + 1],)) for n in (3, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(told, expected)

    def test_the_programs_own_profiler_goes_first(self):
        if not torch.profiler.kineto_available():
            profile = torch.autograd.profiler.profile
            run = profile(use_kineto=False)
            try:
                profile._prepare_trace(run)
            except Exception:  # this PyTorch was built without Kineto
                self.assertEqual(self.recorder.standing, ["torch.profiler", None])
            return
        with torch.profiler.profile():
            self.train(Model(), [5])
        self.assertEqual(self.recorder.standing, ["torch.profiler", None])


if __name__ == "__main__":
    unittest.main()
