"""How many batches of the program's data an iteration takes.

With gradient accumulation each forward pass takes a batch of its own. Where two models take turns
(GAN), where a batch is cut into parts with a step each, where a model is called several times before
a backward pass (siamese networks), or on several disturbed copies of a batch, passes share one.
Lengths alone do not tell: batches that were put together by their lengths have equal ones, and the
parts of one batch may have different ones. These tell:

* The program's DataLoader gave as many batches as there were passes, or iterations. Nothing else is
  believed where it gave batches at all.
* All passes of an iteration had the same tensors, and the next iteration had others.
* Passes do not share tensors, nor do their lengths or tensors come in groups of one size.

Where nothing tells, the answer is that it is not known.

Threading: one thread at a time; on_taken on any, under the interpreter's lock. Ownership: inputs
are referred to weakly.
"""

import math
import weakref

EACH, ONE, UNKNOWN = 0, 1, -1  # as seqpoint_batches() takes them

LEAST = 16  # iterations that must agree
WINDOW = 64  # iterations that are judged together
SHARE = 16  # what one in so many iterations has is how the program works, what fewer have is not
AHEAD = 1  # batches that a program may take before it needs them
GROUPS = 8  # of passes that are alike, until their size is known
ROWS = 2  # of passes that share a tensor and then no more

NO_PROOF = ("no DataLoader of PyTorch gives one batch for each iteration, and its passes do not "
            "all have the same tensors")
SEVERAL = "an iteration has several forward passes"


class Batches:
    """watch() begins a window of iterations; on_taken(), on_call() and end() tell what happens, as
    long as `watching` is true."""

    def __init__(self):
        self.watching = False  # the other calls are wanted
        self._turns = None  # why the passes are those of several steps, in words
        self._lost = None  # why the iterations so far do not tell, in words
        self._said = None  # what was found before
        self.watch()

    def watch(self):
        """Looks at how the passes share batches, at the beginning and again now and then."""
        if not self.watching:
            self.watching = True
            self._is_whole = False  # the open iteration was watched from its beginning
            self._before = self._state = None
            self._taken = []  # sources of the batches since the last pass
            self._begin_window()
            self._begin_iteration()

    def begin(self):
        """What counts as an iteration is different from here on."""
        self._said = None
        self.watching = False
        self.watch()

    def _begin_window(self):
        self._iterations = self._several = self._joined = self._differing = 0
        self._passes = self._batches = self._mixed = 0
        self._same = 0  # iterations in which all passes had the same tensors
        self._shared = _Shared()

    def _begin_iteration(self):
        self._calls = 0  # of the root
        self._others = 0  # of other modules
        self._of_loader = 0  # batches
        self._sources = set()  # which data they are of
        self._is_joined = self._differs = False
        self._has_same = True
        self._before, self._state = self._state, None  # tensors of the first call
        self._first = None  # numbers of the first call
        self._latest = self._gradient = None  # of the call before

    def take_turns(self, why):
        """Passes of an iteration lie between steps of different optimisers."""
        self._turns = why
        self.watch()

    def give_up(self, why):
        """The run has iterations of more than one kind; None: it has not, after all."""
        before, self._lost = self._lost, why
        if why is not None or before is not None:
            self.watch()

    def on_taken(self, source):
        """The program took a batch from a DataLoader. `source`: the id of its data."""
        if len(self._taken) < WINDOW * WINDOW:
            self._taken.append(source)

    def on_call(self, numbers, tensors, are_all, gradient, is_root):
        """A call with gradients. `tensors`: its inputs, and whether these are all; `gradient`: what
        every backward pass changes, or None."""
        known = [given for tensor in tensors if (given := _input(tensor)) is not None]
        state = known if known and are_all and len(known) == len(tensors) else None
        if self._calls + self._others == 0:
            self._state = state
            self._has_same = not _are_same(state, self._before)
        self._has_same &= _are_same(state, self._state)
        if not is_root:
            self._others += 1
            return
        self._calls += 1
        self._shared.add(known, numbers)
        self._take()
        if self._calls == 1:
            self._first = numbers
        else:
            again = _are_same(state, self._latest)
            self._is_joined |= again or (gradient is not None and gradient == self._gradient)
            self._differs |= len(numbers) == len(self._first) and any(
                a != b for a, b in zip(numbers, self._first))
        self._latest, self._gradient = state, gradient

    def _take(self):
        """What was taken before a pass is for it. Batches of other data that came before (those of
        an evaluation) are not, where that is seldom."""
        taken, self._taken = self._taken, []
        if taken:
            self._of_loader += taken.count(taken[-1])
            self._sources.update(taken)

    def end(self):
        """The iteration is over. Answers how many batches one takes, and why, in words; None: as
        before."""
        was_whole, self._is_whole = self._is_whole, True
        if was_whole and self._calls > 0:
            self._iterations += 1
            self._passes += self._calls
            self._batches += self._of_loader
            self._mixed += len(self._sources) > 1
            self._several += self._calls > 1
            self._joined += self._is_joined
            self._differing += self._differs
            self._same += self._has_same and self._calls + self._others > 1
        several = self._calls > 1
        self._begin_iteration()
        if self._iterations >= LEAST:
            self._said = self._judge()
        if self._iterations >= WINDOW:
            # One pass for each iteration: that goes on, mostly.
            self.watching = self._several > 0 or self._turns is not None
            self._begin_window()
        if self._lost is not None:
            return UNKNOWN, self._lost
        if self._said is None and (several or self._turns is not None):
            return UNKNOWN, self._turns or SEVERAL
        return self._said

    def _judge(self):
        if self._mixed * SHARE > self._iterations:
            return UNKNOWN, "it takes batches of several data sets"
        if self._turns is not None:
            return self._judge_shared(self._turns)
        if self._joined * SHARE > self._iterations:
            return self._judge_shared("one backward pass is for several forward passes")
        if self._batches > 0:
            if self._took(self._passes):
                return EACH, "a DataLoader gives a batch for each"
            return UNKNOWN, (f"of {self._passes} forward passes in {self._iterations} iterations "
                             f"a DataLoader gave {self._batches} batches")
        if why := self._shared.why():
            return UNKNOWN, why
        if self._several * SHARE <= self._iterations:
            return EACH, "nearly all iterations have one"
        if self._differing * SHARE >= self._several:
            return EACH, "their lengths differ"
        return UNKNOWN, ("the forward passes of an iteration have the same lengths, and no "
                         "DataLoader of PyTorch gives a batch for each")

    def _judge_shared(self, why):
        if self._took(self._iterations):
            return ONE, f"{why}, and the DataLoader gives one batch for each iteration"
        if self._batches == 0 and self._same == self._iterations:
            return ONE, f"{why}, and all passes have the same tensors"
        return UNKNOWN, f"{why}; {NO_PROOF}"

    def _took(self, number):
        return abs(self._batches - number) <= AHEAD


class _Shared:
    """Which passes seem to work on one batch: they share tensors, or come in groups."""

    def __init__(self):
        self._before = []  # tensors of the pass before
        self._linked = 0  # passes in a row that share their first tensors
        self._rows = -1  # of several such passes; the first one may have begun before
        self._groups = []  # by the place of a tensor among the inputs; the first: of the numbers

    def add(self, tensors, numbers):
        before, self._before = self._before, tensors
        if before and tensors and (
                any(tensors[0].is_of(other) for other in before) or
                any(before[0].is_of(other) for other in tensors)):
            self._linked += 1
        elif before:
            self._rows += self._linked > 1 or self._rows < 0
            self._linked = 1
        for place, value in enumerate((tuple(numbers), *tensors)):
            if place == len(self._groups):
                self._groups.append(_Groups())
            self._groups[place].add(value)

    def why(self):
        """Why passes may share batches, in words; None: they do not."""
        if self._rows >= ROWS:
            return "forward passes share tensors, or work on parts of one"
        size = max((groups.size() for groups in self._groups), default=1)
        if size > 1:
            return f"forward passes come in groups of {size} with the same lengths or tensors"
        return None


class _Groups:
    """Of which size are the groups of passes that have the same?"""

    def __init__(self):
        self._value = None
        self._count = 0
        self._groups = -1  # the first one may have begun before
        self._divisor = 0

    def add(self, value):
        if self._count > 0 and value == self._value:
            self._count += 1
            return
        if self._groups >= 0:
            self._divisor = math.gcd(self._divisor, self._count)
        self._groups += self._count > 0
        self._value, self._count = value, 1

    def size(self):
        """The number that all sizes are multiples of; 1: not known, or none."""
        return self._divisor if self._groups >= GROUPS else 1


class _Input:
    """A tensor that a pass had, weakly, as often as it was written to by then."""

    __slots__ = ("tensor", "whole", "version")

    def __init__(self, tensor):
        self.version = tensor._version
        self.tensor = weakref.ref(tensor)
        base = tensor._base
        self.whole = self.tensor if base is None else weakref.ref(base)

    def __eq__(self, other):
        tensor = self.tensor()
        return tensor is not None and tensor is other.tensor() and self.version == other.version

    def is_of(self, other):
        """Both are parts of one tensor, or the same."""
        whole = self.whole()
        return whole is not None and whole is other.whole() and self.version == other.version


def _input(tensor):
    try:
        return _Input(tensor)
    except Exception:  # some count no changes
        return None


def _are_same(state, other):
    return state is not None and state == other
