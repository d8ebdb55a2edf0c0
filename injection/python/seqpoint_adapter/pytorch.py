"""Watches the training loop of PyTorch: optimiser steps, and the inputs of the root module.

How it hooks in, so that nothing of the program's changes:

* The optimiser step by PyTorch's global hook (2.0 and later), else by wrapping `step` of each
  optimiser's class, as PyTorch's own profiler hook does.
* The root module by `__call__` of its class. No hook is stored in a module, where it would be
  pickled and copied with it, and keyword inputs are seen in every version. Passes without gradients
  by what it wraps, or by copies, are seen in the same way.
* GradScaler.step, for steps that it leaves out; CUDAGraph.replay, for iterations that were captured
  as a whole; torch.profiler, which needs CUPTI to itself.

Finding the root: until the first optimiser step after one was found, every outermost call of a
module is looked at (`torch.nn.Module.__call__` is replaced for that long). The first one with
gradients and parameters is the root. A program that compiles must not be traced through that, so
from torch.compile on the outermost owners of the optimiser's parameters are watched instead, from
its first step on. Modules called beside the root in an iteration (a decoder apart from its encoder)
tell their shapes, too.

torch.compile: its machinery notes down nn.Module.__call__ when it is loaded (by the first optimiser
that is made, from 2.1 on), so PyTorch's own is put back for that long. It never compiles a frame of
ours; what it traces through, the watched classes' `__call__`, is nothing but a call then.

Threading: the hooks run on whatever thread trains. What a call tells is that thread's own; the state
of the loop has no lock, as the library may wait for the GPU in a call, and the GPU for another
thread. Two threads that train at once are taken for one loop. Ownership: modules and optimisers are
referred to weakly.
"""

import _thread
import atexit
import functools
import importlib
import inspect
import os
import sys
import time
import weakref

from . import around_import, by_hand, features, hide_frame, tell
from .batches import EACH, ONE, Batches
from .collectives import Collectives
from .cycle import TAKEN_OVER, Cycle
from .hooks import around, compiling, leave_uncompiled, let_script, safely
from .modules import Target, Targets, owners_of, parameters_of, trained_by, wrapped_by
from .operators import Recorder
from .passes import GradientFree, LeftOut

MAX_COMPANIONS = 3
MAX_EARLY = 1024  # forwards before the first optimiser step
SEARCHES = 3  # levels of the module tree that are tried where the outermost is never called
SEARCHED_STEPS = 32  # until a search without torch.compile ends; some programs step before training
LOST_AFTER = 3  # steps without a call of the root: something else is trained now
UNEXPLAINED = 64  # backward passes without a step of any kind, until that is said
UNEXPLAINED_AT_END = 16  # the same, when the program ends
SURE = 3  # steps by hand until they are taken for such
TOLD_BY_PROGRAM = (
    "import ctypes; seqpoint = ctypes.CDLL(None); and, where each iteration begins, "
    "if hasattr(seqpoint, 'seqpoint_iteration_begin'): seqpoint.seqpoint_attach(0), "
    "seqpoint.seqpoint_iteration_begin(ctypes.c_int64(int(length)))")
MAX_PARTS = 1024  # steps with other parameters that belong to one iteration


class Adapter:
    def __reduce__(self):
        """Tools such as cloudpickle write the program's classes with all that they hold, and so our
        functions in them, which do nothing where such a pickle is read."""
        return bool, ()

    def __init__(self, torch, library):
        self._torch = torch
        self._library = library
        self._grad = torch.is_grad_enabled
        self._plainly = torch._C.DisableTorchFunction  # classes of the program see no read of ours
        self._hook = self._step_hook()
        self._broken = False
        self._attached = False  # the library profiles this process
        self._on_host = False  # ... which does the work itself
        self._early = []  # what was to be told before
        # The loop.
        self._cycle = Cycle()
        self._outer_steps = {}  # optimiser class -> the code of its step that may call a parent's
        self._steps = 0
        self._forwards = 0  # of training, since the last step
        self._called_root = False  # by Python, since the last step
        self._gradient_free = GradientFree()
        self._was_free = False  # there were passes without gradients since the last step
        self._begun = False  # they have begun the iteration
        self._holds_free = False  # they did at some time
        self._left_out = LeftOut()
        self._train_mode = False  # the root trains in training mode
        self._scaler_stepped = False
        self._stepped = None  # what the step that ended the last iteration had: ids of both
        self._parts = 0  # further steps of that iteration
        self._capturing = None  # what is told while a CUDA graph is captured
        self._captured = weakref.WeakKeyDictionary()  # graph with a part of an iteration -> _Capture
        self._profilers = weakref.WeakSet()  # of the program, that run
        self._passes = False  # there were some since the last step of any optimiser
        self._inner = None  # the optimiser that stepped last inside this iteration, in words
        self._batches = Batches()
        self._said_batches = (EACH, "")
        self._graded = None  # a parameter of the root that has gradients, weakly
        self._hand = by_hand.ByHand()
        self._hand_steps = 0
        self._by_hand = False
        self._ends_watched = False  # the end of the program is looked at
        self._backward = {}  # by name: our function around PyTorch's
        self._trainings = 1
        self._look_at = 1  # the step at which _look() comes next
        self._has_rank = False
        # The modules.
        self._targets = Targets()
        self._root = None
        self._patched = {}  # class -> (its own __call__ or None, ours)
        self._searching = False
        self._searches = 0
        self._without_root = 0  # steps
        self._patience = LOST_AFTER  # of those, until another search
        self._compiles = False
        self._inside = _thread._local()  # whose `depth`: calls of modules, of each thread its own
        self._called = []  # targets called in this iteration while searching
        self._met = {}  # by id: modules that were called while searching, weakly
        self._said = None  # of the last root that was found
        self._recorder = None  # of operators, where they are asked for
        self._collectives = None

    @safely
    def install(self):
        torch = self._torch
        for owner, name, *hooks in self._hooks():
            if hasattr(owner, name):
                around(self, owner, name, *hooks)
        # As an attribute of torch.optim it is missing in some versions.
        optimizer = importlib.import_module("torch.optim.optimizer")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(self._hook)
        else:
            around(self, torch.optim.Optimizer, "_hook_for_profile", after="_hook_class")
        for scaler in _scalers(torch):
            self._wrap_scaler(scaler)
        if hasattr(torch.cuda, "CUDAGraph"):
            self._wrap_graph(torch.cuda.CUDAGraph)
        if os.environ.get("SEQPOINT_OPERATORS"):
            self._recorder = Recorder(torch, self._library, os.environ["SEQPOINT_OPERATORS"])
        self._collectives = Collectives(torch, self._library)
        self._search()
        self._watch_backward(True)
        if hasattr(torch, "compile"):
            leave_uncompiled(sys.modules.get("torch._dynamo"))
            around_import("torch._dynamo", self._before_dynamo, self._on_dynamo)

    def _hooks(self):
        """Yields what is hooked in any case where it is there: a class or module, the name of its
        function, and the names of methods of ours, as hooks.around takes them."""
        torch = self._torch
        loaders = sys.modules.get("torch.utils.data.dataloader")
        yield torch.optim.Optimizer, "__init__", None, "_on_optimizer"
        yield getattr(loaders, "_BaseDataLoaderIter", None), "__next__", None, "_on_taken"
        yield torch, "compile", "_on_compile"
        profile = torch.autograd.profiler.profile
        if hasattr(profile, "_prepare_trace"):
            yield profile, "_prepare_trace", "_on_profiler", None, "_on_profiler_ended"
            yield profile, "__exit__", None, "_on_profiler_ended", "_on_profiler_ended"

    # Hooks.

    def _hook_class(self, optimizer):
        """PyTorch before 2.0 calls this when an optimiser is made."""
        if not hasattr(type(optimizer).step, "seqpoint"):
            step = around(self, type(optimizer), "step", after="_on_step")
            step.seqpoint = step.hooked = True

    def _watch_end(self, owner):
        """Behind all that PyTorch does around a step: its own record of it is to be whole."""
        if not hasattr(owner.step, "seqpoint_end"):
            around(self, owner, "step", after="_on_step_end").seqpoint_end = True

    def _on_step_end(self, *_, **__):
        self._recorder.on_step(self._forwards == 0)

    def _wrap_scaler(self, scaler):
        """An iteration whose step GradScaler leaves out (overflow) is an iteration all the same."""
        around(self, scaler, "step", "_before_scaler", "_after_scaler")

    def _before_scaler(self, *_, **__):
        self._scaler_stepped = False

    def _after_scaler(self, _, optimizer, *__, **___):
        if not self._scaler_stepped:
            self._on_step(optimizer)

    def _step_hook(self):
        """For PyTorch's global hook. A compiled step is cut before it, to be seen; where nothing
        may be cut, it goes unseen."""
        is_compiling = compiling(self._torch)

        def hook(optimizer, args, kwargs):
            if not is_compiling():
                self._on_step(optimizer)

        hook._torchdynamo_disable = True
        return hook

    @safely
    def _before_dynamo(self):
        self._restore(self._torch.nn.Module)

    @safely
    def _on_dynamo(self, dynamo):
        leave_uncompiled(dynamo)
        self._watch_all()

    @safely
    def _on_compile(self, model=None, *_, fullgraph=False, **__):
        if fullgraph and not isinstance(model, self._torch.nn.Module):
            self._hook.__dict__.pop("_torchdynamo_disable", None)
        if not self._compiles:
            self._compiles = True
            self._watch_backward(False)
            self._searches = 0
            self._restore(self._torch.nn.Module)

    def _wrap_graph(self, graph_class):
        """Iterations that are captured as a whole run no Python when they are replayed."""
        around(self, graph_class, "capture_begin", after="_on_capture")
        around(self, graph_class, "capture_end", before="_on_captured")
        around(self, graph_class, "replay", "_on_replay", "_on_replayed")

    def _on_capture(self, *_, **__):
        self._capturing = _Capture()

    def _on_captured(self, graph, *_, **__):
        capture, self._capturing = self._capturing, None
        self._captured.pop(graph, None)
        if capture is not None and (capture.stepped or capture.passes > 0):
            self._captured[graph] = capture

    @safely
    def _on_replay(self, graph, *_, **__):
        """Passes without their step: the optimiser's comes later. Where Python called the root, the
        call has told (torch.cuda.make_graphed_callables)."""
        capture = self._captured.get(graph)
        if capture is None or not self._attached or (self._called_root and not capture.stepped):
            return
        if not capture.stepped:
            if self._forwards == 0:
                self._gradient_free.on_begin(self._was_free)
                self._left_out.on_first(None)
            self._forwards += capture.passes
        for training, *told in capture.forwards:
            if self._begun and training:  # by passes without gradients
                self._begun, training = False, None
            self._library.forward(training, *told)

    @safely
    def _on_replayed(self, graph, *_, **__):
        capture = self._captured.get(graph)
        if capture is not None and capture.stepped and self._attached:
            self._library.step(0)
            self._was_free = self._begun = False

    def _on_profiler(self, profile, *_, **__):
        """CUPTI serves one profiler at a time: the program's own goes first."""
        own = self._recorder is not None and self._recorder.make_room()
        if not own and profile not in self._profilers:
            self._profilers.add(profile)
            self._library.stand_down("torch.profiler")

    def _on_profiler_ended(self, profile, *_, **__):
        if profile in self._profilers:
            self._profilers.discard(profile)
            self._library.come_back()

    def _fail(self, error):
        self._broken = True
        if self._recorder is not None:
            self._recorder.close()
        if self._collectives is not None:
            self._collectives.close()
        self._targets.clear()
        self._searching = False
        self._watch_backward(False)
        self._restore_all()
        self._library.describe(False, f"the PyTorch adapter failed ({error!r}); iterations are "
                               "found without it")

    def _is_active(self):
        """The library profiles this process."""
        return self._attached or self._library.active()

    # Calls of modules.

    def _root_module(self):
        return self._root.module() if self._root is not None else None

    def _replace(self, owner, call):
        self._patched[owner] = (owner.__dict__.get("__call__"), call)
        owner.__call__ = call

    def _restore(self, owner):
        own, ours = self._patched.pop(owner, (None, None))
        if ours is None or owner.__dict__.get("__call__") is not ours:
            return  # somebody put another one over ours, which then only passes calls on
        if own is None:
            del owner.__call__
        else:
            owner.__call__ = own

    def _restore_all(self):
        for owner in list(self._patched):
            self._restore(owner)

    def _search(self):
        """Looks for the root among what is called until the next step."""
        self._searching = True
        self._searches = 0
        self._without_root = 0
        self._root = self._graded = None
        self._targets.clear()
        self._called = []
        self._met = {}
        self._restore_all()
        self._watch_all()

    def _watch_all(self):
        """Watches the calls of all modules, for the time of a search."""
        if self._compiles or not self._searching:
            return
        adapter, module = self, self._torch.nn.Module
        original, is_compiling = module.__call__, compiling(self._torch)

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            inside = adapter._inside
            depth = getattr(inside, "depth", 0)
            watched = adapter._searching and not is_compiling()
            if watched and depth == 0:
                adapter._on_outermost(self, args, kwargs)
            inside.depth = depth + watched
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                inside.depth = depth

        self._replace(module, call)

    @safely
    def _on_outermost(self, module, args, kwargs):
        self._met[id(module)] = weakref.ref(module)
        target = self._targets.get(id(module))
        if target is None or target.module() is not module:
            self._called = [t for t in self._called if t.module() is not None]
            if not self._grad():
                # Nobody can tell yet whose it is; before the first iteration it is in none.
                self._was_free |= self._steps == 0 and any(
                    p.requires_grad for p in parameters_of(module))
                return
            if len(self._called) > MAX_COMPANIONS:
                return
            if self._torch.jit.is_tracing():
                return
            if not any(p.requires_grad for p in parameters_of(module)):
                return  # a loss, a frozen teacher
            root = self._root_module()
            if root is not None and any(part is module for part in root.modules()):
                return  # run again in the backward pass (activation checkpoints)
            target = self._add_target(module)
        self._on_call(target, module, args, kwargs)

    def _add_target(self, module):
        target = self._targets[id(module)] = Target(module, f"{type(module).__name__}.")
        return target

    def _watch(self, owner):
        """Watches the calls of a class' instances: of those that are targets, and without gradients
        of all."""
        if any(base in self._patched for base in owner.__mro__):
            return
        adapter, targets, original = self, self._targets, owner.__call__
        is_compiling, inherited = compiling(self._torch), "__call__" not in owner.__dict__
        base = self._torch.nn.Module

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            if is_compiling():
                # torch.compile inlines this where it meets the class (torch/_dynamo/variables/
                # nn_module.py: UnspecializedNNModuleVariable.call_function), so it is nothing but a
                # call: what cannot be traced would be an error under fullgraph.
                return original(self, *args, **kwargs)
            target = targets.get(id(self))
            if target is not None:
                adapter._on_call(target, self, args, kwargs)
            elif adapter and (adapter._forwards == 0 or adapter._hand.watching):
                adapter._on_relative(self)
            try:
                if inherited and base.__call__ is not original:  # replaced, as torch.fx does
                    return super(owner, self).__call__(*args, **kwargs)
                return original(self, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        self._replace(owner, call)

    @safely
    def _on_call(self, target, module, args, kwargs):
        if target.module() is not module:
            self._targets.pop(id(module), None)
            return
        if self._forwards > 0:
            self._before_further_pass(target)
        if self._searching:
            if (self._root is None or self._root.module() is None) and self._grad():
                self._root = target
                target.label = ""
            if target not in self._called:
                self._called.append(target)
        is_root = target is self._root
        if not (self._trains(module) if is_root else self._grad()):
            self._on_gradient_free()
            return
        self._passes = True
        if is_root:
            if self._forwards == 0:
                self._begin_iteration(module)
            self._forwards += 1
            self._called_root = True
        elif self._forwards == 0:
            return
        training = True if is_root else None
        if self._begun:  # by passes without gradients
            self._begun, training = False, None
        numbers = None
        if is_root or target.steps != self._steps:
            numbers = self._tell(target, args, kwargs, training)
        if self._recorder is not None and is_root:
            if self._forwards > 1:
                self._recorder.on_pass()
            elif training:
                self._recorder.on_begin(self._on_host, self._compiles)
        target.steps = self._steps
        if self._batches.watching:
            self._note_pass(target, args, kwargs, numbers, is_root)
        elif self._forwards > 1:
            self._batches.watch()  # from the next iteration on

    def _begin_iteration(self, root):
        if self._recorder is not None:
            self._recorder.end()
        self._train_mode = root.training
        self._gradient_free.on_begin(self._was_free)
        if self._gradient_free.is_sure and not self._holds_free:
            self._holds_free = True
            self._say()
        self._left_out.on_first(self._gradient())

    @safely
    def _on_relative(self, module):
        """An instance of a class that is watched is called, which is no target: what the root
        wraps, or a copy of it."""
        if self._forwards > 0:
            self._before_further_pass(self._root)
        if not self._trains(module):
            self._on_gradient_free()

    def _trains(self, module):
        """A call of the root, or of what belongs to it, is one of training."""
        return self._grad() and (module.training or not self._train_mode)

    def _on_gradient_free(self):
        """A pass without gradients: an evaluation, unless they come before nearly every step."""
        if self._recorder is not None:
            self._recorder.on_pass()
        if self._forwards > 0 or self._was_free:
            return  # within an iteration; of a phase that was told
        self._was_free = True
        self._begun = self._steps > 0 and self._gradient_free.recur
        self._send(1 if self._begun else 0, self._library.names(()), ())

    def _gradient(self):
        """Answers what each backward pass changes; None also where that is not known."""
        parameter = self._graded() if self._graded is not None else None
        return None if parameter is None else by_hand.gradient(parameter)

    def _find_graded(self):
        if self._graded is None or self._graded() is None:
            root = self._root_module()
            parameter = by_hand.graded(root) if root is not None else None
            self._graded = weakref.ref(parameter) if parameter is not None else None

    def _before_further_pass(self, target):
        """A call behind another one, with no step of the optimiser that ends iterations between."""
        if target is not self._root:
            pass
        elif self._hand.watching and self._hand.stepped(self._cycle):
            self._on_hand_step()
        elif self._searching:
            if self._inner is not None and self._cycle.was_over(self._takes_part):
                self._end_iteration(self._cycle.closer())
        elif (self._left_out.may_be and self._grad() and not self._by_hand and
              not self._is_inside_step() and self._left_out.on_further(self._gradient())):
            self._end_iteration()
        if self._inner is not None and self._grad():
            self._batches.take_turns(
                f"{self._inner} steps between the forward passes of an iteration")
            self._inner = None

    def _takes_part(self, parameters):
        """May an optimiser of these be about to step, which never has? Not one of modules that
        nobody called, nor of parameters beside those that stepped that got no gradient."""
        stepped, own = self._cycle.stepped(), {id(p) for p in parameters}
        for reference in list(self._met.values()):
            of_module = {id(p) for p in parameters_of(reference())}
            if not own.isdisjoint(of_module) and stepped.isdisjoint(of_module):
                return True
            if not own.isdisjoint(of_module) and any(p.grad is not None for p in parameters):
                return True
        return False

    def _note_pass(self, target, args, kwargs, numbers, is_root):
        """One of several passes of an iteration."""
        if numbers is None:
            numbers = target.reader.read(args, kwargs)
        tensors, are_all = features.tensors(self._torch, (*args, *kwargs.values()))
        known = self._graded is not None and self._graded() is not None
        gradient = (self._gradient(),) if known else None
        with self._plainly():
            self._batches.on_call(numbers, tensors, are_all, gradient, is_root)

    def _tell(self, target, args, kwargs, training):
        """`training`: False of an evaluation batch; None: of a module beside the root."""
        reader = target.reader
        if reader is None:
            reader = target.reader = features.Reader(self._torch, target.module())
        numbers = reader.read(args, kwargs)
        if target.names is not reader.names:
            target.names = reader.names
            target.names_at = self._library.names(
                tuple(target.label + name for name in target.names))
        self._send(training, target.names_at, numbers)
        return numbers

    def _send(self, training, names_at, numbers):
        if self._capturing is not None and len(self._capturing.forwards) < MAX_EARLY:
            self._capturing.forwards.append((training, names_at, numbers))
        if self._is_active():
            self._attached = True
            self._library.forward(training, names_at, numbers)
        elif len(self._early) < MAX_EARLY:
            self._early.append((training, names_at, numbers, time.time_ns()))

    # Optimiser steps.

    @safely
    def _on_optimizer(self, optimizer, *_, **__):
        """An optimiser was made: of another model than the root, it begins another training (the
        next fold, the next stage), whose first iteration is not to be missed."""
        self._cycle.add(optimizer)
        if self._recorder is not None:
            self._watch_end(type(optimizer))
        steps = [vars(c)["step"] for c in type(optimizer).__mro__ if "step" in vars(c)]
        if len(steps) > 2:  # its own, a parent's, and that of Optimizer, which does nothing
            code = getattr(inspect.unwrap(steps[0]), "__code__", None)
            if code is not None and code.co_argcount > 0:
                self._outer_steps[type(optimizer)] = code
        if self._searching or self._root is None or self._compiles:
            return
        root, trained = self._root.module(), trained_by(optimizer)
        # One parameter is no model: an input that is optimised, perhaps in each iteration.
        is_other = len(trained) > 1 and (
            root is None or not any(id(p) in trained for p in parameters_of(root)))
        if self._by_hand or is_other:
            self._by_hand = False
            self._trainings += 1
            self._search()

    @safely
    def _on_step(self, optimizer, *_, **__):
        self._scaler_stepped = True
        if self._collectives is not None:
            self._collectives.on_step()
        if not (self._outer_steps and self._is_inner_step(optimizer)):
            self._step(optimizer)

    def _step(self, optimizer):
        own, self._passes = self._passes, False
        if self._searching:
            self._watch_backward(False)
        ended = self._cycle.ends(optimizer, own)
        if not ended:
            if self._forwards > 0:
                self._inner = type(optimizer).__name__
            return
        if self._forwards == 0 and self._is_part(optimizer):
            return
        self._stepped, self._parts = (id(optimizer), _first_parameter(optimizer)), 0
        self._left_out.on_step(self._forwards)
        self._end_iteration(optimizer)
        if ended == TAKEN_OVER:
            self._batches.begin()
            self._batches.take_turns(f"{type(optimizer).__name__} and another optimiser step in "
                                     "turn")
            self._search()

    def _end_iteration(self, optimizer=None, at_ns=0):
        """With a step of the optimiser, one by hand, or one that is left out."""
        forwards, self._forwards = self._forwards, 0
        self._called_root = False
        self._inner = None
        if self._capturing is not None:
            self._capturing.stepped = True
        if not self._is_active() and self._root is not None:
            self._attach(self._root.module())
        if self._is_active():
            self._library.step(at_ns)
        self._was_free = self._begun = False
        self._steps += 1
        if self._steps >= self._look_at or self._cycle.changed:
            self._look()
        if self._batches.watching:
            self._tell_batches(forwards)
        if self._searching:
            self._end_search(optimizer)
        elif forwards > 0:
            self._without_root = 0
        else:
            self._without_root += 1
            gone = self._root is not None and self._root.module() is None
            if gone or self._without_root >= self._patience:
                self._search()

    def _look(self):
        """Looks at what changes seldom, at steps that become rare."""
        self._look_at = 2 * self._steps
        self._cycle.changed = False
        self._batches.give_up(self._other_trainings())
        self._batches.watch()
        self._find_graded()
        self._ask_rank()

    def _tell_batches(self, forwards):
        """How many batches the iteration took that is over."""
        if forwards > 1:
            self._find_graded()
        said, before = self._batches.end(), self._said_batches
        if said is None or said[0] == before[0] == EACH:
            return  # whatever tells it
        if said != before and self._is_active():
            self._said_batches = said
            per_iteration, why = said
            self._library.batches(per_iteration, {
                EACH: f"each forward pass takes a batch of its own: {why}",
                ONE: f"an iteration takes one batch: {why}",
            }.get(per_iteration, f"it is not known how many batches an iteration takes: {why}"))

    @safely
    def _on_taken(self, iterator):
        """A DataLoader gave a batch. Those of an evaluation are taken without gradients."""
        if self._batches.watching and self._grad():
            self._batches.on_taken(id(getattr(iterator, "_dataset", iterator)))

    def _other_trainings(self):
        """Why the iterations so far say nothing of all that the run will do; None: they do."""
        if self._trainings > 1:
            return "several trainings follow each other, each with an optimiser of its own"
        if self._cycle.phases:
            return "optimisers of different models step in phases"
        if self._by_hand and len(self._called) > 1:
            return "several modules are trained by hand"
        to_come = self._cycle.to_come()
        if to_come is None:
            return None
        return f"{type(to_come).__name__}, which was made for other parameters, has not stepped yet"

    def _ask_rank(self):
        """Processes that torch.multiprocessing starts have their rank from torch.distributed."""
        if self._has_rank:
            return
        distributed = sys.modules.get("torch.distributed")
        if (distributed is not None and distributed.is_available() and
                distributed.is_initialized()):
            rank, size = distributed.get_rank(), distributed.get_world_size()
            self._library.rank(rank, size)
            self._has_rank = True

    # Programs without an optimiser of torch.optim.

    def _watch_backward(self, watch):
        """Backward passes are watched as long as no optimiser was seen."""
        if watch == self._hand.watching:
            return
        self._hand.watching = watch
        autograd = self._torch.autograd
        for name in ("backward", "grad"):
            if watch:
                self._backward[name] = around(self, autograd, name, after="_on_backward")
                let_script(self._torch, self._backward[name])
            elif getattr(autograd, name) is self._backward[name]:
                setattr(autograd, name, self._backward[name].__wrapped__)

    @safely
    def _on_backward(self, *_, **__):
        if not self._hand.watching:
            return
        root = self._root_module()
        self._hand.on_backward(root)
        if not self._ends_watched:
            self._ends_watched = True
            atexit.register(self._on_exit)
        if self._hand.passes == UNEXPLAINED and self._steps == 0:
            self._explain(root)
            self._watch_backward(False)
            self._watch_found()

    def _explain(self, root):
        tell(b"u")
        if not self._is_active():
            self._attach(root)
        self._library.describe(False, (
            f"PyTorch {self._torch.__version__}: there were {self._hand.passes} backward passes, "
            f"and no step of an optimiser that could be seen; the program can tell its iterations: "
            f"{TOLD_BY_PROGRAM}"))

    def _on_hand_step(self):
        """The program changed the parameters itself since the last backward pass."""
        self._hand_steps += 1
        if self._hand_steps < SURE and not self._is_active():
            self._forwards = 0
            self._was_free = False
            self._steps += 1
            if len(self._early) < MAX_EARLY:
                self._early.append(self._hand.passed_ns)
            return
        if not self._by_hand:
            self._by_hand = self._cycle.changed = True
            self._batches.begin()  # the first passes, each with a step, were one iteration's until now
        self._left_out.on_step(self._forwards)
        self._end_iteration(at_ns=self._when())

    @safely
    def _on_exit(self):
        if not self._hand.watching:
            return
        if self._by_hand and self._hand.stepped(self._cycle):
            self._library.step(self._when())
        elif self._steps == 0 and self._hand.passes >= UNEXPLAINED_AT_END:
            self._explain(self._root_module())

    def _when(self):
        """The time of a step by hand, for the library; 0: now. It is noticed late, the last one
        when the program ends. Where the host does the work, it is known to have followed the
        backward pass."""
        return self._hand.passed_ns if self._on_host else 0

    def _is_inner_step(self, optimizer):
        """The step of a parent's class, called by the optimiser's own."""
        code, frame = self._outer_steps.get(type(optimizer)), sys._getframe()
        while code is not None and frame is not None:
            if frame.f_code is code and frame.f_locals.get(code.co_varnames[0]) is optimizer:
                return True
            frame = frame.f_back
        return False

    def _is_inside_step(self):
        """An optimiser calls the model itself, by a closure."""
        frame = sys._getframe()
        while frame is not None:
            if frame.f_code.co_name == "step" and isinstance(
                    frame.f_locals.get("self"), self._torch.optim.Optimizer):
                return True
            frame = frame.f_back
        return False

    def _is_part(self, optimizer):
        """A step that is made in parts, one set of parameters after the other, with no forward in
        between (DeepSpeed's ZeRO), ends one iteration: with the first."""
        if (self._stepped is None or id(optimizer) != self._stepped[0] or
                _first_parameter(optimizer) == self._stepped[1] or self._parts == MAX_PARTS):
            return False
        self._parts += 1
        return True

    def _attach(self, root):
        """The first step of a program without CUDA: the library begins here."""
        self._ask_rank()
        on_host = root is None or all(p.device.type == "cpu" for p in parameters_of(root))
        if not self._library.attach(0 if on_host else 1):
            return
        self._attached, self._on_host = True, on_host
        for told in self._early:
            if isinstance(told, tuple):
                self._library.forward(*told)
            else:
                self._library.step(told)
        self._early = []

    def _watch_found(self):
        """Watches what was called while searching, and nothing else. Answers these modules."""
        self._searching = False
        self._met = {}
        self._without_root = 0
        self._patience = LOST_AFTER
        self._targets = Targets({key: t for key, t in self._targets.items() if t in self._called})
        self._restore_all()
        modules = [module for t in self._called if (module := t.module()) is not None]
        root = self._root_module()
        for module in (*modules, *(wrapped_by(root) if root is not None else ())):
            self._watch(type(module))
        return modules

    def _say(self):
        if self._said is not None:
            self._library.describe(True, self._said + (
                "; passes without gradients come before nearly every step and are part of the "
                "iteration, those of an evaluation among them" if self._holds_free else ""))

    def _end_search(self, optimizer):
        if self._root is not None:
            words = ("steps that the program makes by hand" if optimizer is None else
                     f"the step of {type(optimizer).__name__}")
            modules = self._watch_found()
            names = [t.label + name for t in self._called if t.reader for name in t.reader.names]
            message = (
                f"PyTorch {self._torch.__version__}: iterations end with {words}; batches are "
                f"those of "
                f"{' and '.join(type(module).__name__ for module in modules)}; reported are "
                f"{', '.join(names) if names else 'no lengths'}")
            if message != self._said:
                self._said = message
                self._say()
            return
        self._searches += 1
        if optimizer is None:
            return
        if not self._compiles and self._searches < SEARCHED_STEPS:
            return
        owners = []
        if self._compiles and self._searches <= SEARCHES:
            owners = owners_of(self._torch, optimizer, self._searches)
        if not owners:
            self._searching = False
            self._targets.clear()
            self._restore_all()
            self._patience *= 10
            self._said = None
            self._library.describe(False, (
                f"PyTorch {self._torch.__version__}: no module with the parameters of "
                f"{type(optimizer).__name__} is called (a step that is compiled as a whole?); "
                "iterations are found without the adapter"))
            return
        for module in owners:
            self._add_target(module)
            self._watch(type(module))


def _scalers(torch):
    """The classes whose `step` may leave out an optimiser's."""
    for parent in (getattr(torch, "amp", None), getattr(torch.cuda, "amp", None)):
        scaler = getattr(getattr(parent, "grad_scaler", None), "GradScaler", None)
        if scaler is not None:
            return [scaler]  # that of torch.cuda.amp inherits the other's
    return []


class _Capture:
    """The calls that were told while a CUDA graph was captured."""

    def __init__(self):
        self.forwards = []
        self.stepped = False

    @property
    def passes(self):
        return sum(training == 1 for training, *_ in self.forwards)


def _first_parameter(optimizer):
    try:
        return id(optimizer.param_groups[0]["params"][0])
    except Exception:  # none, or not yet
        return 0
