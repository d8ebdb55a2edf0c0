import random
import unittest

from seqpoint_adapter.batches import EACH, LEAST, ONE, UNKNOWN, Batches


class Tensor:
    _version = 0

    def __init__(self, base=None):
        self._base = base


class BatchesTest(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(1)
        self.begin()

    def begin(self):
        self.batches = Batches()
        self.batches.watch()
        self.batches.end()  # the iteration in which several passes were seen

    def draw(self):
        return [8, self.random.randrange(5, 60)]

    def iterate(self, *passes, count=40, taken=0):
        """Each pass, of the root or not: the lengths and the tensor of which of the iteration's own
        two batches it has; None: a tensor of its own. `taken`: batches from a DataLoader."""
        for _ in range(count):
            for _ in range(taken):
                self.batches.on_taken(1)
            lengths, tensors = (self.draw(), self.draw()), (Tensor(), Tensor())
            for i, (is_root, of_lengths, of_tensor) in enumerate(passes):
                tensor = Tensor() if of_tensor is None else tensors[of_tensor]
                self.batches.on_call(lengths[of_lengths], [tensor], (i,), is_root)
            said = self.batches.end()
        return said[0]

    def test_accumulation_takes_a_batch_each_time(self):
        self.assertEqual(self.iterate((True, 0, 0), (True, 1, 1), count=1), EACH)

    def test_of_passes_with_equal_lengths_in_one_step_it_is_not_known(self):
        for count in (1, LEAST // 2, 100):
            self.begin()
            self.assertEqual(self.iterate(*[(True, 0, None)] * 3, count=count), UNKNOWN)

    def test_nor_of_passes_whose_lengths_never_change(self):
        for _ in range(100):
            for i in range(3):
                self.batches.on_call([8, 20], [Tensor()], (i,), True)
            said = self.batches.end()
        self.assertEqual(said[0], UNKNOWN)

    def test_a_data_loader_tells_what_equal_lengths_do_not(self):
        accumulation = [(True, 0, None)] * 3
        self.assertEqual(self.iterate(*accumulation, taken=3, count=LEAST // 2), UNKNOWN)
        self.assertEqual(self.iterate(*accumulation, taken=3), EACH)
        self.begin()
        self.assertEqual(self.iterate(*accumulation, taken=1), UNKNOWN)
        # A batch ahead, as programs take that copy it while they work.
        self.begin()
        self.batches.on_taken(1)
        self.assertEqual(self.iterate(*accumulation, taken=3), EACH)

    def test_parts_of_a_batch_are_no_batches(self):
        def iterate(base, taken=0):
            for _ in range(40):
                whole = base or Tensor()
                for _ in range(taken):
                    self.batches.on_taken(1)
                for i in range(3):
                    self.batches.on_call(self.draw(), [Tensor(whole)], (i,), True)
                said = self.batches.end()
            return said[0]

        self.assertEqual(iterate(None), UNKNOWN)
        self.begin()
        self.assertEqual(iterate(Tensor()), EACH)  # of all data
        self.begin()
        self.assertEqual(iterate(Tensor(), taken=1), UNKNOWN)

    def test_turns_take_one_batch_where_the_data_loader_says_so(self):
        turns = [(True, 0, None)] * 3 + [(False, 0, None)]
        self.batches.take_turns("A steps")
        self.assertEqual(self.iterate(*turns, taken=1, count=LEAST // 2), UNKNOWN)
        self.assertEqual(self.iterate(*turns, taken=1), ONE)
        self.assertEqual(self.iterate(*turns, taken=3, count=1), UNKNOWN)
        for taken in (0, 2, 3):
            self.begin()
            self.batches.take_turns("A steps")
            self.assertEqual(self.iterate(*turns, taken=taken), UNKNOWN)

    def test_batches_of_several_data_sets_are_not_counted(self):
        self.batches.take_turns("A steps")
        self.batches.on_taken(2)
        self.assertEqual(self.iterate(*[(True, 0, None)] * 2, taken=1), UNKNOWN)

    def test_turns_with_equal_lengths_are_no_proof(self):
        # Three batches of one bucket for the critic, the last of them for the generator, too.
        self.batches.take_turns("A steps")
        turns = [(True, 0, None), (True, 0, None), (True, 0, 0), (False, 0, 0)]
        self.assertEqual(self.iterate(*turns, count=200), UNKNOWN)

    def test_turns_take_one_batch_where_all_have_the_same_tensor(self):
        turns = (True, 0, 0), (True, 0, 0), (False, 0, 0)
        self.batches.take_turns("A steps")
        self.assertEqual(self.iterate(*turns, count=LEAST // 2), UNKNOWN)
        self.assertEqual(self.iterate(*turns), ONE)
        # Another tensor, once, is enough to say so no more.
        self.assertEqual(self.iterate((True, 0, 0), (True, 0, 1), count=1), UNKNOWN)
        self.assertEqual(self.iterate(*turns), UNKNOWN)

    def test_a_tensor_that_is_written_to_is_another_batch(self):
        self.batches.take_turns("A steps")
        for _ in range(40):
            tensor = Tensor()
            for i in range(2):
                tensor._version = i
                self.batches.on_call([8, 20], [tensor], (i,), True)
            said = self.batches.end()
        self.assertEqual(said[0], UNKNOWN)

    def test_a_tensor_that_never_changes_is_no_batch(self):
        self.batches.take_turns("A steps")
        graph = Tensor()
        for _ in range(40):
            for i in range(2):
                self.batches.on_call(self.draw(), [graph], (i,), True)
            said = self.batches.end()
        self.assertEqual(said[0], UNKNOWN)

    def test_several_passes_before_a_backward_pass(self):
        for same, says in ((True, ONE), (False, UNKNOWN)):
            self.begin()
            for _ in range(40):
                tensors = Tensor(), Tensor()
                for tensor in (tensors[0], tensors[not same]):
                    self.batches.on_call(self.draw(), [tensor], (0,), True)
                said = self.batches.end()
            self.assertEqual(said[0], says)

    def test_several_trainings_are_not_known_whatever_else_says(self):
        self.batches.give_up("there are two")
        passes = [(True, 0, 0)] * 2
        self.assertEqual(self.iterate(*passes), UNKNOWN)
        self.batches.give_up(None)
        self.batches.take_turns("A steps")
        self.assertEqual(self.iterate(*passes), ONE)


if __name__ == "__main__":
    unittest.main()
