import unittest

from seqpoint_adapter.passes import MOST_IN_A_ROW, MOST_LEFT_OUT, RECENT, SURE, GradientFree, LeftOut


class GradientFreeTest(unittest.TestCase):
    def recurring(self, had):
        """Of each iteration but the first, whether its passes are a part of it."""
        passes, answers = GradientFree(), []
        for it in had:
            answers.append(passes.recur if it else None)
            passes.on_begin(it)
        return answers[1:]

    def test_passes_before_each_step_are_a_part_of_it_from_the_first_on(self):
        self.assertEqual(self.recurring([True] * 50), [True] * 49)

    def test_passes_now_and_then_are_an_evaluation(self):
        for period in (2, 5, 100):
            had = [n % period == period - 1 for n in range(300)]
            self.assertEqual(set(self.recurring(had)), {None, False}, period)

    def test_a_few_steps_without_them_change_nothing(self):
        had = [n % 8 != 5 for n in range(100)]
        self.assertEqual(set(self.recurring(had)), {None, True})

    def test_a_phase_with_them_is_noticed(self):
        answers = self.recurring([False] * 101 + [True] * 100)
        self.assertEqual(answers[100:100 + RECENT // 2], [False] * (RECENT // 2))
        self.assertEqual(answers[100 + RECENT:], [True] * (100 - RECENT))


class LeftOutTest(unittest.TestCase):
    def setUp(self):
        self.left_out = LeftOut()

    def iterate(self, count, passes=1):
        for _ in range(count):
            self.left_out.on_first("old")
            for _ in range(passes - 1):
                self.left_out.on_further("changed")
            self.left_out.on_step(passes)

    def test_a_second_pass_with_nothing_left_of_the_first_is_another_iteration(self):
        for gradient, answer in ((None, True), ("old", True), ("changed", False)):
            self.setUp()
            self.iterate(SURE)
            self.left_out.on_first("old")
            self.assertEqual(self.left_out.on_further(gradient), answer, gradient)

    def test_loops_that_pass_several_times_are_not_cut(self):
        for passes in (2, 4):
            self.setUp()
            self.iterate(100, passes)
            self.left_out.on_first("old")
            self.assertFalse(self.left_out.on_further("old"))

    def test_nor_is_the_first_iteration(self):
        self.left_out.on_first(None)
        self.assertFalse(self.left_out.on_further(None))

    def test_many_passes_without_a_step_are_no_training(self):
        self.iterate(SURE)
        self.left_out.on_first("old")
        cut = [self.left_out.on_further("old") for _ in range(100)]
        self.assertEqual(sum(cut), MOST_LEFT_OUT)

    def test_a_loop_that_changes_is_cut_no_more(self):
        self.iterate(SURE)
        cut = 0
        for _ in range(100):
            self.left_out.on_first("old")
            cut += self.left_out.on_further("old")
            self.left_out.on_step(1)
        self.assertEqual(cut, MOST_IN_A_ROW)


if __name__ == "__main__":
    unittest.main()
