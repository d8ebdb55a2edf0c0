"""What passes of an iteration are, beside those that its step uses.

Threading: one thread at a time.
"""

from collections import deque

RECENT = 16  # iterations by which it is judged whether passes without gradients come before each
OFTEN = 0.75  # of them
SURE = 8  # iterations in a row with one pass each, until a second one is no micro-batch
MOST_LEFT_OUT = 3  # steps between two that are made; more are a loop of another kind
MOST_IN_A_ROW = 3  # steps that are made, each behind one that was left out; the same


class GradientFree:
    """Passes without gradients between two iterations: an evaluation, or a part of the iteration
    that follows, as rollouts, teachers and target networks are, which come before nearly every
    step."""

    def __init__(self):
        self._recent = deque(maxlen=RECENT)

    def on_begin(self, had):
        """An iteration begins. `had`: such passes came since the step before it."""
        self._recent.append(had)

    @property
    def recur(self):
        """They belong to the iteration that follows."""
        return 0 < len(self._recent) <= sum(self._recent) / OFTEN

    @property
    def is_sure(self):
        return len(self._recent) == RECENT and self.recur


class LeftOut:
    """Steps that the program leaves out without telling PyTorch: the loss of a batch is not finite,
    or its gradients overflow. Where each iteration has one pass, a second one begins the next
    iteration, if nothing of the first is left in the gradients.

    `gradient`: what every backward pass changes (by_hand.gradient)."""

    def __init__(self):
        self._single = 0  # iterations in a row with one pass each
        self._left_out = 0  # since the last step that was made
        self._in_a_row = 0  # steps that were made, each behind one that was left out
        self._gradient = None
        self._gives_up = False

    @property
    def may_be(self):
        return self._single >= SURE and not self._gives_up

    def on_first(self, gradient):
        """The first pass of an iteration is about to come."""
        self._gradient = gradient

    def on_further(self, gradient):
        """Another one is about to come: was there a step between that has been left out?"""
        if not self.may_be or not (gradient is None or gradient == self._gradient):
            return False
        self._left_out += 1
        self._gives_up = self._left_out > MOST_LEFT_OUT or self._in_a_row >= MOST_IN_A_ROW
        return not self._gives_up

    def on_step(self, passes):
        """A step was made, behind so many passes of its iteration."""
        self._single = self._single + 1 if passes == 1 else 0
        self._in_a_row = self._in_a_row + 1 if self._left_out > 0 else 0
        self._left_out = 0
