import gc
import unittest

from seqpoint_adapter.cycle import RAREST, Cycle


class Optimizer:
    pass


def ends(cycle, order):
    return [cycle.ends(optimizer) for optimizer in order]


class CycleTest(unittest.TestCase):
    def make(self, count):
        cycle, optimizers = Cycle(), [Optimizer() for _ in range(count)]
        for optimizer in optimizers:
            cycle.add(optimizer)
        return cycle, optimizers

    def test_one_optimizer_ends_each_iteration(self):
        cycle, (a,) = self.make(1)
        self.assertEqual(ends(cycle, [a] * 5), [True] * 5)

    def test_of_two_that_take_turns_the_second_ends_it_from_the_first_iteration_on(self):
        cycle, (a, b) = self.make(2)
        self.assertEqual(ends(cycle, [a, b] * 3), [False, True] * 3)

    def test_the_order_of_making_does_not_matter(self):
        cycle, (a, b) = self.make(2)
        self.assertEqual(ends(cycle, [b, a] * 3), [False, True] * 3)

    def test_an_optimizer_that_never_steps_costs_one_iteration_at_most(self):
        cycle, (a, _) = self.make(2)
        self.assertEqual(ends(cycle, [a] * 4), [False, True, True, True])

    def test_five_critic_steps_for_each_of_the_generator(self):
        cycle, (d, g) = self.make(2)
        rhythm = [d] * 5 + [g]
        ends(cycle, rhythm * 2)
        self.assertEqual(ends(cycle, rhythm * 2), ([False] * 5 + [True]) * 2)

    def test_a_rare_optimizer_does_not_end_iterations(self):
        cycle, (a,) = self.make(1)
        ends(cycle, [a] * (RAREST + 1))
        rare = Optimizer()
        self.assertEqual(ends(cycle, [rare, a, a]), [False, True, True])

    def test_when_the_closer_rests_another_takes_over(self):
        cycle, (a, b) = self.make(2)
        ends(cycle, [a, b] * 3)
        self.assertEqual(ends(cycle, [a] * (RAREST + 3)), [False] * RAREST + [True] * 3)

    def test_a_closer_that_is_gone_is_replaced(self):
        cycle, optimizers = self.make(1)
        cycle.ends(optimizers[0])
        optimizers.clear()
        gc.collect()
        new = Optimizer()
        cycle.add(new)
        self.assertTrue(cycle.ends(new))


if __name__ == "__main__":
    unittest.main()
