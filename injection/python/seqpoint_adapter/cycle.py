"""Which optimiser's step ends an iteration, where several optimisers take turns.

A GAN steps the discriminator's optimiser, then the generator's; some models have one optimiser for
dense and one for sparse parameters. The iteration ends with the last of them: the one that was the
last to step for the first time. The first iteration waits for all optimisers that exist.

Threading: one thread at a time. Ownership: optimisers are referred to weakly.
"""

import weakref

# One that steps less often than every so many steps of another belongs to no cycle (embeddings that
# are updated now and then); one that has not stepped for so many rests.
RAREST = 16


class Cycle:
    def __init__(self):
        self._waiting = weakref.WeakSet()  # made, never stepped
        self._closer = None
        self._closed = 0  # steps of the closer
        self._others = weakref.WeakKeyDictionary()  # steps of each since the closer's last
        self._others_stepped = False

    def add(self, optimizer):
        """An optimiser was made."""
        self._waiting.add(optimizer)

    def ends(self, optimizer):
        """This optimiser has stepped: is the iteration over?"""
        closer = self._closer() if self._closer is not None else None
        if optimizer is not closer:
            new = optimizer not in self._others
            steps = self._others[optimizer] = self._others.get(optimizer, 0) + 1
            self._others_stepped = True
            self._waiting.discard(optimizer)
            if closer is None:
                # The others that exist are expected in the first iteration, but not for ever.
                if new and self._waiting:
                    return False
            elif not (new and self._closed <= RAREST) and steps <= RAREST:
                return False
            self._closer = weakref.ref(optimizer)
            self._closed = 0
        self._closed += 1
        if self._others_stepped:
            self._others_stepped = False
            for other in list(self._others):
                self._others[other] = 0
        return True
