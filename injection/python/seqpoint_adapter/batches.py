"""How many batches of the program's data an iteration takes.

With gradient accumulation each forward pass takes a batch of its own. Where two models take turns
(GAN), or a model is called several times before a backward pass (siamese networks), the passes may
work on one batch. Only the lengths can tell: passes over one batch have the same lengths in every
iteration, while the lengths change from iteration to iteration. Where they do not tell, the answer
is that it is not known.

Threading: one thread at a time. Ownership: readers and inputs are referred to weakly.
"""

import weakref

EACH, ONE, UNKNOWN = 0, 1, -1  # as seqpoint_batches() takes them

# Lengths that are always equal are those of one batch when chance explains that no better than so.
CHANCE = 1e-6
LEAST = 16  # iterations to compare
SHARE = 16  # passes that share a backward pass count when one in so many iterations has them
REST = 64  # iterations of a single pass after which passes are not watched


class _Agreement:
    """The numbers of one module's calls that were always equal to one of the iteration's first."""

    def __init__(self):
        self.pairs = None  # of places: in the first call's numbers, in these
        self.iterations = 0
        self.changes = 0  # iterations with other numbers than the one before
        self._latest = self._numbers = None

    def add(self, first, numbers, iteration):
        pairs = self.pairs
        if pairs is None:
            pairs = [(i, j) for i in range(len(first)) for j in range(len(numbers))]
        self.pairs = [(i, j) for i, j in pairs if first[i] == numbers[j]]
        if self._latest != iteration:
            self._latest = iteration
            self.iterations += 1
            self.changes += numbers != self._numbers
            self._numbers = numbers

    def is_constant(self):
        """Such as noise of a fixed shape: no batch of lengths that change."""
        return self.changes * SHARE <= self.iterations + SHARE


class Batches:
    def __init__(self):
        self.watching = False  # an iteration has several passes: they are to be told
        self._turns = None  # why the passes are those of several steps, in words
        self._lost = None  # why lengths cannot tell, in words
        self._iterations = self._joined = self._single = 0
        self._calls = 0  # of the root in the open iteration
        self._is_joined = False
        self._reader = None  # of the root, that the evidence is of
        self._first = self._last = None  # numbers of the iteration's first call, and of the latest
        self._agreements = weakref.WeakKeyDictionary()  # by reader
        self._compared = 0  # iterations whose first call was compared with the call before it
        self._repeated = []  # by place: in how many of those it had the same number
        self._input = self._gradient = None  # of the call before

    def take_turns(self, why):
        """Passes of an iteration lie between steps of different optimisers."""
        self.watching = True
        self._turns = why

    def give_up(self, why):
        """The run has iterations of more than one kind; None: it has not, after all."""
        self._lost = why
        self.watching |= why is not None

    def on_call(self, reader, numbers, value, gradient, is_root):
        """A call with gradients. `value`: its first input; `gradient`: what every backward pass
        changes, or None."""
        if is_root:
            self._calls += 1
            if self._calls > 1:
                same = self._input is not None and self._input() is value
                self._is_joined |= same or (gradient is not None and gradient == self._gradient)
            self._gradient = gradient
            try:
                self._input = weakref.ref(value)
            except TypeError:
                self._input = None
        if not reader.settled:
            return
        if is_root and self._calls == 1:
            self._begin(reader, numbers)
        elif self._first is not None:
            agreement = self._agreements.get(reader)
            if agreement is None:
                agreement = self._agreements[reader] = _Agreement()
            agreement.add(self._first, numbers, self._iterations)
        if is_root:
            self._last = numbers

    def _begin(self, reader, numbers):
        if self._reader is None or self._reader() is not reader:
            self._reader = weakref.ref(reader)
            self._agreements.clear()
            self._compared, self._repeated = 0, [0] * len(numbers)
        elif self._last is not None and len(self._last) == len(numbers):
            self._compared += 1
            for i, number in enumerate(numbers):
                self._repeated[i] += number == self._last[i]
        self._first = numbers

    def end(self):
        """The iteration is over. Answers how many batches one takes, and why, in words."""
        self._iterations += 1
        self._joined += self._is_joined
        self._single = self._single + 1 if self._calls < 2 else 0
        if self._single > REST and self._turns is None and self._lost is None:
            self.watching = False
        self._calls, self._is_joined, self._first = 0, False, None
        if self._lost is not None:
            return UNKNOWN, self._lost
        shared = self._turns
        if shared is None and self._joined * SHARE > self._iterations:
            shared = "one backward pass is for several forward passes"
        if shared is None:
            if not self._agree():
                return EACH, ""
            return UNKNOWN, "all forward passes of an iteration have the same lengths"
        return (ONE if self._agree() else UNKNOWN), shared

    def _agree(self):
        agreements = [a for a in self._agreements.values() if not a.is_constant()]
        return bool(agreements) and all(self._is_proof(a) for a in agreements)

    def _is_proof(self, agreement):
        if agreement.iterations < LEAST or not agreement.pairs:
            return False
        for place in {i for i, _ in agreement.pairs}:
            chance = (self._repeated[place] + 1) / (self._compared + 2)
            if chance ** agreement.iterations < CHANCE:
                return True
        return False
