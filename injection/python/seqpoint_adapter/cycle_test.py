import gc
import unittest

from seqpoint_adapter.cycle import RAREST, Cycle


class Optimizer:
    """Of a parameter of its own, or of another one's."""

    def __init__(self, like=None):
        self.param_groups = like.param_groups if like else [{"params": [object()]}]


def ends(cycle, order):
    return [bool(cycle.ends(optimizer)) for optimizer in order]


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

    def test_an_optimizer_that_another_one_is_made_of_is_not_waited_for(self):
        cycle, (a,) = self.make(1)
        cycle.add(outer := Optimizer(like=a))
        self.assertEqual(ends(cycle, [a] * 4), [True] * 4)
        del outer

    def test_an_optimizer_that_does_not_take_part_costs_no_iteration(self):
        cycle, (a, b) = self.make(2)
        self.assertFalse(cycle.was_over(lambda parameters: False))  # nothing stepped
        self.assertEqual(ends(cycle, [a]), [False])
        self.assertFalse(cycle.was_over(lambda parameters: True))
        self.assertTrue(cycle.was_over(lambda parameters: parameters != b.param_groups[0]["params"]))
        self.assertFalse(cycle.was_over(lambda parameters: False))  # once
        self.assertEqual(ends(cycle, [a] * 4), [True] * 4)
        self.assertIs(cycle.to_come(), b)

    def test_five_critic_steps_for_each_of_the_generator(self):
        cycle, (d, g) = self.make(2)
        rhythm = [d] * 5 + [g]
        ends(cycle, rhythm * 2)
        self.assertEqual(ends(cycle, rhythm * 2), ([False] * 5 + [True]) * 2)

    def test_the_one_that_steps_less_often_ends_it_whichever_steps_first(self):
        cycle, (g, d) = self.make(2)
        rhythm = [g] + [d] * 5
        ends(cycle, rhythm * 2)
        self.assertEqual(ends(cycle, rhythm * 2), ([True] + [False] * 5) * 2)

    def test_beside_one_that_never_steps_the_same_one_ends_them(self):
        for rhythm in ([0, 1], [0] * 5 + [1]):
            cycle, optimizers = self.make(3)
            for optimizer in optimizers:
                optimizer.param_groups = [{"params": [object()]}]
            order = [optimizers[i] for i in rhythm]
            ends(cycle, order * (RAREST + 1))
            self.assertEqual(ends(cycle, order * 2), ([False] * (len(rhythm) - 1) + [True]) * 2)

    def test_one_that_steps_behind_another_without_a_pass_is_no_rarer_cycle(self):
        cycle, (sparse, dense) = self.make(2)
        for n in range(20):
            if n % 4 == 0:
                cycle.ends(sparse)
            self.assertTrue(cycle.ends(dense, own=n % 4 != 0), n)

    def test_models_trained_one_after_the_other_are_phases(self):
        cycle, (a, b) = self.make(2)
        ends(cycle, [a] * 40)
        self.assertFalse(cycle.phases)
        ends(cycle, [b] * 40)
        self.assertTrue(cycle.phases)

    def test_an_optimizer_of_other_parameters_that_is_yet_to_step(self):
        cycle, (a, b) = self.make(2)
        a.param_groups = [{"params": [object()]}]
        b.param_groups = [{"params": list(a.param_groups[0]["params"])}]  # made of a
        cycle.ends(b)
        self.assertIsNone(cycle.to_come())
        c = Optimizer()
        c.param_groups = [{"params": [object()]}]
        cycle.add(c)
        self.assertIs(cycle.to_come(), c)

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
