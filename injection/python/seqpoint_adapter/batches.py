"""How many batches of the program's data an iteration takes.

With gradient accumulation each forward pass takes a batch of its own. Where two models take turns
(GAN), or a model is called several times before a backward pass (siamese networks), or on several
disturbed copies of a batch, the passes may work on one batch. Equal lengths do not tell: batches
that were put together by their lengths have them, too. These do:

* The program's DataLoader gave as many batches as there were iterations, or passes.
* All passes of an iteration had the same tensors, and the next iteration had others.
* Passes with a backward pass each had other lengths: they had batches of their own, unless they
  were parts of one tensor, or the DataLoader gave one batch for all.

Where nothing tells, the answer is that it is not known.

Threading: one thread at a time; on_taken on any, under the interpreter's lock. Ownership: inputs
are referred to weakly.
"""

import weakref

EACH, ONE, UNKNOWN = 0, 1, -1  # as seqpoint_batches() takes them

LEAST = 16  # iterations that must agree
SHARE = 16  # what one in so many iterations has is how the program works, what fewer have is not
REST = 64  # iterations of a single pass after which passes are not watched
AHEAD = 1  # batches that a program may take before it needs them

NO_PROOF = ("no DataLoader of PyTorch gives one batch for each iteration, and its passes do not "
            "all have the same tensors")


class Batches:
    def __init__(self):
        self._watching = False
        self._turns = None  # why the passes are those of several steps, in words
        self._lost = None  # why the iterations so far do not tell, in words
        self.begin()

    def begin(self):
        """What counts as an iteration is different from here on."""
        self._is_whole = False  # the open iteration was watched from its beginning
        self._iterations = self._several = self._joined = self._differing = self._single = 0
        self._passes = self._divided = 0
        self._taken, self._source = 0, None  # batches of the DataLoader; which data it is of
        self._same = 0  # iterations in which all passes had the same tensors
        self._state = self._latest = None  # of the iteration's first call, and of the latest
        self._whole = None  # that the first call's tensor is a part of, weakly
        self._begin_iteration()

    def _begin_iteration(self):
        self._calls = 0  # of the root
        self._others = 0  # of other modules
        self._is_joined = self._differs = self._is_divided = False
        self._has_same = True
        self._before, self._state = self._state, None
        self._whole_before, self._whole = self._whole, None
        self._first = None  # numbers of the first call
        self._gradient = None  # at the call before

    @property
    def watching(self):
        """An iteration has several passes: they are to be told."""
        return self._watching

    def watch(self):
        if not self._watching:
            self._watching = True
            self.begin()

    def take_turns(self, why):
        """Passes of an iteration lie between steps of different optimisers."""
        self._turns = why
        self.watch()

    def give_up(self, why):
        """The run has iterations of more than one kind; None: it has not, after all."""
        self._lost = why
        if why is not None:
            self.watch()

    def on_taken(self, source):
        """The program took a batch from a DataLoader. `source`: the id of its data."""
        self._taken += 1
        if self._source is None:
            self._source = source
        elif self._source != source:
            self._source = False  # several, whose batches belong together perhaps

    def on_call(self, numbers, tensors, gradient, is_root):
        """A call with gradients. `tensors`: its inputs; `gradient`: what every backward pass
        changes, or None."""
        state = _state(tensors)
        if self._calls + self._others == 0:
            self._state = state
            self._has_same = not _are_same(state, self._before)
        self._has_same &= _are_same(state, self._state)
        if not is_root:
            self._others += 1
            return
        self._calls += 1
        whole = _whole(tensors)
        if self._calls == 1:
            self._first, self._whole = numbers, whole
        else:
            again = _are_same(state, self._latest)
            self._is_joined |= again or (gradient is not None and gradient == self._gradient)
            self._differs |= len(numbers) == len(self._first) and any(
                a != b for a, b in zip(numbers, self._first))
            # All batches may be parts of one tensor, too.
            self._is_divided |= _is(whole, self._whole) and not _is(whole, self._whole_before)
        self._latest, self._gradient = state, gradient

    def end(self):
        """The iteration is over. Answers how many batches one takes, and why, in words."""
        was_seen = self._is_whole and self._calls > 0
        if was_seen:
            self._iterations += 1
            self._passes += self._calls
            self._several += self._calls > 1
            self._joined += self._is_joined
            self._differing += self._differs
            self._divided += self._is_divided
            self._same += self._has_same and self._calls + self._others > 1
            self._single = self._single + 1 if self._calls < 2 else 0
        else:
            self.begin()
            self._is_whole = True
        self._begin_iteration()
        if self._lost is not None:
            return UNKNOWN, self._lost
        if not was_seen:
            return UNKNOWN, self._turns or "an iteration has several forward passes"
        if self._single > REST and self._turns is None:
            self._watching = False
        return self._judge()

    def _judge(self):
        if self._turns is not None:
            return self._judge_shared(self._turns)
        if self._joined * SHARE > self._iterations:
            return self._judge_shared("one backward pass is for several forward passes")
        if self._several * SHARE <= self._iterations:
            return EACH, "nearly all iterations have one"
        if self._took(self._passes):
            return EACH, "a DataLoader gives a batch for each"
        if self._took(self._iterations) or self._divided * SHARE > self._several:
            return UNKNOWN, "the forward passes of an iteration seem to share a batch"
        if self._taken > 0 and self._iterations < LEAST:
            return UNKNOWN, "an iteration has several forward passes"
        if self._differing * SHARE >= self._several:
            return EACH, "their lengths differ"
        return UNKNOWN, ("the forward passes of an iteration have the same lengths, and no "
                         "DataLoader of PyTorch gives a batch for each")

    def _judge_shared(self, why):
        if self._took(self._iterations):
            return ONE, f"{why}, and the DataLoader gives one batch for each iteration"
        if self._same == self._iterations >= LEAST:
            return ONE, f"{why}, and all passes have the same tensors"
        return UNKNOWN, f"{why}; {NO_PROOF}"

    def _took(self, number):
        """The DataLoader gave so many batches, as far as that can be said."""
        return (self._source not in (None, False) and self._iterations >= LEAST and
                abs(self._taken - number) <= AHEAD)


def _state(tensors):
    """The tensors, weakly, and how often each was written to; None: they cannot be known again."""
    try:
        return [(weakref.ref(tensor), tensor._version) for tensor in tensors] or None
    except Exception:  # some count no changes
        return None


def _are_same(state, other):
    return (state is not None and other is not None and len(state) == len(other) and
            all(a[1] == b[1] and a[0]() is not None and a[0]() is b[0]()
                for a, b in zip(state, other)))


def _whole(tensors):
    """The tensor that the first one is a part of, weakly; None: it is whole."""
    try:
        return weakref.ref(tensors[0]._base)
    except Exception:
        return None


def _is(reference, other):
    return (reference is not None and other is not None and reference() is not None and
            reference() is other())
