"""Which optimiser's step ends an iteration, where several optimisers take turns.

A GAN steps the discriminator's optimiser, then the generator's; some models have one optimiser for
dense and one for sparse parameters. The iteration ends with the last of them: the one that was the
last to step for the first time, or, where another one steps less often, with that. The first
iteration waits for all optimisers that exist and may take part in it.

Threading: one thread at a time. Ownership: optimisers are referred to weakly.
"""

import weakref

# One that steps less often than every so many steps of another belongs to no cycle (embeddings that
# are updated now and then); one that has not stepped for so many rests.
RAREST = 16

# Answer of Cycle.ends: yes, and another optimiser ends them from now on.
TAKEN_OVER = 2


class Cycle:
    def __init__(self):
        self._waiting = weakref.WeakSet()  # made, never stepped
        self.phases = False  # optimisers whose models are trained one after the other
        self.changed = False  # what to_come() or phases say, perhaps
        self._closer = None
        self._closed = 0  # steps of the closer
        self._others = weakref.WeakKeyDictionary()  # steps of each since the closer's last
        self._closed_at = weakref.WeakKeyDictionary()  # steps of the closer, at each one's last
        self._latest = None  # that stepped
        self._newest = lambda: None  # the last to step for the first time
        self._joint = weakref.WeakSet()  # step behind another one, with no pass in between

    def add(self, optimizer):
        """An optimiser was made."""
        self._waiting.add(optimizer)
        self.changed = True

    def waits_with(self, parameter):
        """An optimiser of this parameter was made that never stepped."""
        return any(p is parameter for optimizer in list(self._waiting)
                   for p in _parameters(optimizer))

    def to_come(self):
        """An optimiser that never stepped, of parameters that no other one steps; None: there is
        none. (Some optimisers are made of another one, which alone steps: SAM, Lookahead.)"""
        return next(self._to_come(), None)

    def _to_come(self):
        if not self._waiting:
            return
        stepped = self.stepped()
        for optimizer in list(self._waiting):
            if not all(id(p) in stepped for p in _parameters(optimizer)):
                yield optimizer

    def stepped(self):
        """The ids of the parameters whose optimisers have stepped."""
        others = list(self._others)
        if (closer := self.closer()) is not None:
            others.append(closer)
        return {id(p) for optimizer in others for p in _parameters(optimizer)}

    def was_over(self, takes_part):
        """The model is called again in the first iteration. Was that over with the last step? It
        was, where none of the optimisers that are yet to step takes part in it.
        `takes_part(parameters)`: one of these may be about to. Answers yes once."""
        last = self._newest()
        if self._closer is not None or last is None:
            return False
        if any(takes_part(_parameters(optimizer)) for optimizer in self._to_come()):
            return False
        self._close(last)
        return True

    def ends(self, optimizer, own=True):
        """This optimiser has stepped: is the iteration over? `own`: there were forward passes since
        the step before, of any optimiser."""
        closer = self.closer()
        latest, self._latest = self._latest, weakref.ref(optimizer)
        if not own and latest is not None and latest() not in (None, optimizer):
            self._joint.update((optimizer, latest()))
        if optimizer is not closer:
            new = optimizer not in self._others
            steps = self._others[optimizer] = self._others.get(optimizer, 0) + 1
            between = self._closed - self._closed_at.get(optimizer, self._closed)
            self._closed_at[optimizer] = self._closed
            self.changed |= new
            self._waiting.discard(optimizer)
            if closer is None:
                # The others that exist are expected in the first iteration, but not for ever.
                self._newest = weakref.ref(optimizer) if new else self._newest
                most = max(self._others.values())
                if most <= RAREST and self.to_come() is not None:
                    return False
                if optimizer is not self._newest() and steps <= 2 * RAREST:
                    return False
            elif steps > RAREST:
                self.phases = self.changed = True
            elif between > 1 and between <= RAREST and optimizer not in self._joint:
                pass  # the closer steps several times for each of its steps
            elif not (new and self._closed <= RAREST):
                return False
        self._close(optimizer)
        return True if closer in (None, optimizer) else TAKEN_OVER

    def closer(self):
        return self._closer() if self._closer is not None else None

    def _close(self, optimizer):
        """An iteration is over with this optimiser's step."""
        if self.closer() is not optimizer:
            self._closer = weakref.ref(optimizer)
            self._closed = 0
            self._closed_at.clear()
        self._closed += 1
        for other in list(self._others):
            self._others[other] = 0


def _parameters(optimizer):
    return [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
