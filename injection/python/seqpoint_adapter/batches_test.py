import random
import unittest

from seqpoint_adapter.batches import EACH, LEAST, ONE, UNKNOWN, Batches


class Reader:
    settled = True


class BatchesTest(unittest.TestCase):
    def setUp(self):
        self.batches = Batches()
        self.batches.watching = True
        self.random = random.Random(1)
        self.critic, self.generator = Reader(), Reader()

    def draw(self):
        return [8, self.random.randrange(5, 60)]

    def iterate(self, *calls, count=40):
        """Each call: a reader and a function of the iteration's own two batches."""
        for _ in range(count):
            drawn = self.draw(), self.draw()
            for i, (reader, choose) in enumerate(calls):
                self.batches.on_call(reader, choose(*drawn), object(), (i,), reader is self.critic)
            said = self.batches.end()
        return said[0]

    def test_accumulation_takes_a_batch_each_time(self):
        calls = (self.critic, lambda a, b: a), (self.critic, lambda a, b: b)
        self.assertEqual(self.iterate(*calls), EACH)

    def test_of_passes_with_equal_lengths_in_one_step_it_is_not_known(self):
        calls = [(self.critic, lambda a, b: a)] * 2
        self.assertEqual(self.iterate(*calls, count=LEAST // 2), EACH)
        self.assertEqual(self.iterate(*calls), UNKNOWN)

    def test_turns_take_one_batch_where_the_lengths_say_so(self):
        self.batches.take_turns("A steps")
        calls = [(self.critic, lambda a, b: a)] * 3 + [(self.generator, lambda a, b: [*a, 3])]
        self.assertEqual(self.iterate(*calls, count=LEAST // 2), UNKNOWN)
        self.assertEqual(self.iterate(*calls), ONE)
        # Another batch, once, is enough to say so no more.
        self.iterate((self.critic, lambda a, b: a), (self.critic, lambda a, b: b), count=1)
        self.assertEqual(self.iterate(*calls), UNKNOWN)

    def test_turns_with_batches_of_their_own(self):
        self.batches.take_turns("A steps")
        calls = (self.critic, lambda a, b: a), (self.critic, lambda a, b: b)
        self.assertEqual(self.iterate(*calls), UNKNOWN)

    def test_equal_lengths_prove_nothing_where_all_batches_have_them(self):
        self.batches.take_turns("A steps")
        self.assertEqual(self.iterate(*[(self.critic, lambda a, b: [8, 30])] * 3), UNKNOWN)

    def test_noise_of_one_shape_is_no_batch(self):
        self.batches.take_turns("A steps")
        calls = [(self.critic, lambda a, b: a)] * 2 + [(self.generator, lambda a, b: [8, 100])]
        self.assertEqual(self.iterate(*calls), ONE)

    def test_several_passes_before_a_backward_pass(self):
        def iterate(choose):
            for _ in range(40):
                a, b = self.draw(), self.draw()
                for numbers in (a, choose(a, b)):
                    self.batches.on_call(self.critic, numbers, object(), (0,), True)
                said = self.batches.end()
            return said[0]

        self.assertEqual(iterate(lambda a, b: a), ONE)
        self.assertEqual(iterate(lambda a, b: b), UNKNOWN)

    def test_the_same_input_twice_is_the_same_batch(self):
        for _ in range(40):
            numbers, value = self.draw(), Reader()
            for gradient in (1, 2):
                self.batches.on_call(self.critic, numbers, value, (gradient,), True)
            said = self.batches.end()
        self.assertEqual(said[0], ONE)

    def test_several_trainings_are_not_known_whatever_the_lengths_say(self):
        self.batches.give_up("there are two")
        calls = [(self.critic, lambda a, b: a)] * 2
        self.assertEqual(self.iterate(*calls), UNKNOWN)
        self.batches.give_up(None)
        self.batches.take_turns("A steps")
        self.assertEqual(self.iterate(*calls), ONE)


if __name__ == "__main__":
    unittest.main()
