import random
import unittest

from seqpoint_adapter.batches import EACH, LEAST, ONE, UNKNOWN, WINDOW, Batches


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
                self.batches.on_call(lengths[of_lengths], [tensor], True, (i,), is_root)
            said = self.batches.end()
        return said[0]

    def pass_on(self, *tensors, numbers=None, are_all=True, gradient=None):
        self.batches.on_call(numbers or self.draw(), tensors, are_all, gradient, True)

    def test_of_a_pass_for_each_step_nothing_is_said_before_it_is_judged(self):
        for _ in range(LEAST - 1):
            self.pass_on(Tensor())
            self.assertIsNone(self.batches.end())
        self.pass_on(Tensor())
        self.assertEqual(self.batches.end()[0], EACH)

    def test_that_is_watched_for_a_window_and_then_only_now_and_then(self):
        def window():
            said = []
            while self.batches.watching:
                self.pass_on(Tensor())
                said.append(self.batches.end())
            return said

        self.assertEqual(len(window()), WINDOW)
        self.batches.watch()
        said = window()  # what was found before holds until there is something new
        self.assertEqual(len(said), WINDOW + 1)
        self.assertEqual({per for per, _ in said}, {EACH})

    def test_accumulation_takes_a_batch_each_time(self):
        passes = (True, 0, 0), (True, 1, 1)
        self.assertEqual(self.iterate(*passes, count=LEAST - 1), UNKNOWN)
        self.assertEqual(self.iterate(*passes, count=1), EACH)

    def test_steps_on_parts_of_a_batch(self):
        for taken in (0, 1):
            self.begin()
            for n in range(60):
                if n % 3 == 0:
                    whole = Tensor()
                    for _ in range(taken):
                        self.batches.on_taken(1)
                # The pass had the result of the one before, besides its part of the batch.
                self.pass_on(Tensor(whole), Tensor())
                said = self.batches.end()
            self.assertEqual(said[0], UNKNOWN)

    def test_steps_on_parts_of_all_data(self):
        data = Tensor()
        for _ in range(60):
            self.pass_on(Tensor(data))
            said = self.batches.end()
        self.assertEqual(said[0], EACH)

    def test_several_steps_on_disturbed_copies_of_a_batch(self):
        for taken in (0, 1):
            self.begin()
            for n in range(60):
                if n % 4 == 0:
                    numbers = [8, n + self.random.randrange(2)]
                    for _ in range(taken):
                        self.batches.on_taken(1)
                self.pass_on(Tensor(), numbers=numbers)
                said = self.batches.end()
            self.assertEqual(said[0], UNKNOWN)

    def test_batches_of_a_bucket_come_in_groups_of_all_sizes(self):
        numbers = self.draw()
        for _ in range(60):
            if self.random.random() < 0.4:
                numbers = self.draw()
            self.pass_on(Tensor(), numbers=numbers)
            said = self.batches.end()
        self.assertEqual(said[0], EACH)

    def test_a_mask_that_is_kept_for_each_length_is_no_batch(self):
        masks = {length: Tensor() for length in range(3)}
        for _ in range(60):
            length = self.random.randrange(3)
            self.pass_on(Tensor(), masks[length], numbers=[8, length])
            said = self.batches.end()
        self.assertEqual(said[0], EACH)

    def test_passes_that_swap_their_tensors_share_a_batch(self):
        for taken in (0, 1):
            self.begin()
            for _ in range(40):
                for _ in range(taken):
                    self.batches.on_taken(1)
                source, target = Tensor(), Tensor()
                self.pass_on(source, target, gradient=1)
                self.pass_on(target, source, gradient=2)
                said = self.batches.end()
            self.assertEqual(said[0], UNKNOWN)

    def test_batches_of_an_evaluation_are_not_counted(self):
        for n in range(60):
            for _ in range(30 if n % 20 == 10 else 0):
                self.batches.on_taken("evaluation")
            self.batches.on_taken("training")
            self.pass_on(Tensor())
            said = self.batches.end()
        self.assertEqual(said, (EACH, "a DataLoader gives a batch for each"))

    def test_an_epoch_may_have_a_data_set_of_its_own(self):
        for passes, says in ((1, EACH), (2, UNKNOWN)):
            self.begin()
            for n in range(60):
                self.batches.on_taken(n // 20)
                for i in range(passes):
                    self.pass_on(Tensor(), gradient=i)
                said = self.batches.end()
            self.assertEqual(said[0], says)

    def test_batches_that_a_thread_takes_ahead(self):
        for taken in range(4):
            self.batches.on_taken(1)
        self.assertEqual(self.iterate((True, 0, 0), (True, 1, 1), taken=1), UNKNOWN)

    def test_inputs_that_cannot_be_looked_into_are_no_proof(self):
        for turns in (False, True):
            self.begin()
            if turns:
                self.batches.take_turns("A steps")
            for _ in range(40):
                constant = Tensor()
                for i in range(4):
                    self.batches.on_taken(1)
                    self.pass_on(constant, are_all=False, gradient=i)
                said = self.batches.end()
            self.assertEqual(said[0], UNKNOWN if turns else EACH)

    def test_of_passes_with_equal_lengths_in_one_step_it_is_not_known(self):
        for count in (1, LEAST // 2, 100):
            self.begin()
            self.assertEqual(self.iterate(*[(True, 0, None)] * 3, count=count), UNKNOWN)

    def test_nor_of_passes_whose_lengths_never_change(self):
        for _ in range(100):
            for i in range(3):
                self.batches.on_call([8, 20], [Tensor()], True, (i,), True)
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
                    self.batches.on_call(self.draw(), [Tensor(whole)], True, (i,), True)
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
        for turns in (False, True):
            self.begin()
            if turns:
                self.batches.take_turns("A steps")
            for _ in range(40):
                self.batches.on_taken("labelled")
                self.batches.on_taken("unlabelled")
                self.pass_on(Tensor(), gradient=1)
                self.pass_on(Tensor(), gradient=2)
                said = self.batches.end()
            self.assertEqual(said[0], UNKNOWN)

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
        self.assertEqual(self.iterate(*turns, count=8), UNKNOWN)

    def test_a_tensor_that_is_written_to_is_another_batch(self):
        self.batches.take_turns("A steps")
        for _ in range(40):
            tensor = Tensor()
            for i in range(2):
                tensor._version = i
                self.batches.on_call([8, 20], [tensor], True, (i,), True)
            said = self.batches.end()
        self.assertEqual(said[0], UNKNOWN)

    def test_a_tensor_that_never_changes_is_no_batch(self):
        self.batches.take_turns("A steps")
        graph = Tensor()
        for _ in range(40):
            for i in range(2):
                self.batches.on_call(self.draw(), [graph], True, (i,), True)
            said = self.batches.end()
        self.assertEqual(said[0], UNKNOWN)

    def test_several_passes_before_a_backward_pass(self):
        for same, says in ((True, ONE), (False, UNKNOWN)):
            self.begin()
            for _ in range(40):
                tensors = Tensor(), Tensor()
                for tensor in (tensors[0], tensors[not same]):
                    self.batches.on_call(self.draw(), [tensor], True, (0,), True)
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
