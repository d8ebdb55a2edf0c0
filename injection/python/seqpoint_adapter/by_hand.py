"""Notices optimiser steps of programs that make them by hand (`p -= rate * p.grad`).

A backward pass came, and when the model is called next its parameters were changed, or its
gradients are gone: there was a step. Counters that PyTorch keeps tell that; no tensor's contents
are read. Gradients that were changed tell nothing: they may have been clipped, scaled, reduced.

Threading: one thread at a time. Ownership: the parameter is referred to weakly.
"""

import time
import weakref


class ByHand:
    def __init__(self):
        self.watching = False  # backward passes are to be told
        self.passes = 0  # backward passes without a step
        self.passed_ns = 0  # when the last one ended
        self._parameter = None  # one that has gradients
        self._version = None  # after the last backward pass; None: stepped since, or there was none
        self._has_gradient = False  # then

    def on_backward(self, module):
        """`module`: what is trained; None: it is not known."""
        self.passes += 1
        self.passed_ns = time.time_ns()
        if module is None:
            return
        parameter = self._parameter() if self._parameter is not None else None
        if parameter is None or parameter.grad is None:
            parameter = graded(module)
            if parameter is None:  # torch.autograd.grad leaves no gradients
                parameter = next((p for p in module.parameters() if p.requires_grad), None)
            if parameter is None:
                return
            self._parameter = weakref.ref(parameter)
        self._version, self._has_gradient = parameter._version, parameter.grad is not None

    def stepped(self, cycle):
        """Was there a step since the last backward pass? Answers yes once. No where an optimiser of
        `cycle` is yet to step: it may be about to (and call the model itself)."""
        if self._version is None:
            return False
        parameter = self._parameter()
        if parameter is None:
            self._version = None
            return False
        is_cleared = self._has_gradient and parameter.grad is None
        if parameter._version == self._version and not is_cleared:
            return False
        if cycle.waits_with(parameter):
            return False
        self.passes = 0
        self._version = None
        return True


def gradient(parameter):
    """Answers what each backward pass changes."""
    grad = parameter.grad
    return None if grad is None else (id(grad), grad._version)


def graded(module):
    """A parameter of the module that has a gradient now; None: there is none."""
    return next((p for p in module.parameters() if p.grad is not None), None)
