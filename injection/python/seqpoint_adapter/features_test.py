import collections
import dataclasses
import unittest

try:
    import torch
    from seqpoint_adapter.features import STUDIED_CALLS, Reader
except ImportError as error:
    raise unittest.SkipTest(f"needs PyTorch: {error}")


class Model(torch.nn.Module):
    def forward(self, tokens, mask=None, **others):
        return tokens


def read(*args, module=None, **kwargs):
    reader = Reader(torch, module or Model(), args, kwargs)
    return dict(zip(reader.names, reader.read(args, kwargs)))


@dataclasses.dataclass
class Batch:
    source: torch.Tensor
    target: torch.Tensor
    note: str = "x"


class FeaturesTest(unittest.TestCase):
    def test_positional_inputs_are_named_as_the_module_names_them(self):
        self.assertEqual(read(torch.zeros(4, 7), torch.zeros(4)),
                         {"tokens.shape[0]": 4, "tokens.shape[1]": 7, "mask.shape[0]": 4})

    def test_keyword_inputs(self):
        self.assertEqual(read(input_ids=torch.zeros(2, 9)),
                         {"input_ids.shape[0]": 2, "input_ids.shape[1]": 9})

    def test_names_are_those_of_a_wrapped_module(self):
        wrapper = torch.nn.DataParallel(Model())
        self.assertIn("tokens.shape[1]", read(torch.zeros(4, 7), module=wrapper))

    def test_dictionaries_lists_tuples_and_dataclasses(self):
        batch = {"ids": torch.zeros(2, 3), "pair": (torch.zeros(5), [torch.zeros(6)])}
        self.assertEqual(read(batch), {
            "tokens['ids'].shape[0]": 2, "tokens['ids'].shape[1]": 3,
            "tokens['pair'][0].shape[0]": 5, "tokens['pair'][1][0].shape[0]": 6})
        self.assertEqual(read(Batch(torch.zeros(2), torch.zeros(8))),
                         {"tokens.source.shape[0]": 2, "tokens.target.shape[0]": 8})
        self.assertEqual(read(collections.UserDict(ids=torch.zeros(4))),
                         {"tokens['ids'].shape[0]": 4})

    def test_a_packed_sequence_tells_its_steps_tokens_and_batch(self):
        packed = torch.nn.utils.rnn.pack_sequence(
            [torch.zeros(n, 3) for n in (5, 2, 2)], enforce_sorted=True)
        self.assertEqual(read(packed),
                         {"tokens.steps": 5, "tokens.tokens": 9, "tokens.batch": 3})

    def test_nested_tensors_tell_their_batch_and_size(self):
        nested = torch.nested_tensor if hasattr(torch, "nested_tensor") else torch.nested.nested_tensor
        numbers = read(nested([torch.zeros(2, 4), torch.zeros(5, 4)]))
        self.assertEqual(list(numbers.values())[0], 2)
        self.assertEqual(list(numbers.values())[1], 28)

    def test_a_list_of_samples_tells_its_number_size_and_longest(self):
        def samples(*lengths):
            return [torch.zeros(length, 4) for length in lengths]

        reader = Reader(torch, Model(), (samples(5, 2, 7, 1, 3),), {})
        self.assertEqual(reader.names, ["tokens.count", "tokens.elements", "tokens.longest[0]",
                                        "tokens.longest[1]"])
        self.assertEqual(reader.read((samples(5, 2, 7, 1, 3),), {}), [5, 72, 7, 4])
        # The last batch of an epoch is smaller.
        self.assertEqual(reader.read((samples(9, 2),), {}), [2, 44, 9, 4])
        for other in ([torch.zeros(3)], []):
            with self.assertRaises(Exception):
                reader.read((other,), {})

    def test_a_few_inputs_in_a_list_are_no_samples(self):
        self.assertEqual(read([torch.zeros(2, 3), torch.zeros(2, 5), torch.zeros(2, 3)]), {
            "tokens[0].shape[0]": 2, "tokens[0].shape[1]": 3, "tokens[1].shape[0]": 2,
            "tokens[1].shape[1]": 5, "tokens[2].shape[0]": 2, "tokens[2].shape[1]": 3})

    def test_jagged_tensors_tell_their_batch_and_tokens(self):
        class Jagged(torch.Tensor):  # as PyTorch 2.x builds it
            is_nested = True

        jagged = torch.zeros(1).as_subclass(Jagged)
        jagged._offsets, jagged._values = torch.zeros(4), torch.zeros(17, 8)
        self.assertEqual(read(jagged), {"tokens.batch": 3, "tokens.tokens": 17})
        jagged._ragged_idx, jagged._values = 2, torch.zeros(8, 17)
        self.assertEqual(read(jagged), {"tokens.batch": 3, "tokens.tokens": 17})

    def test_a_part_that_is_called_module_is_no_wrapped_module(self):
        class Named(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.module = Model()

            def forward(self, source, target):
                return self.module(source)

        self.assertEqual(read(torch.zeros(2), torch.zeros(3), module=Named()),
                         {"source.shape[0]": 2, "target.shape[0]": 3})

    def test_variable_length_attention_is_told_by_shapes_and_numbers(self):
        # Tokens of all sequences in one row, as flash attention takes them.
        numbers = read(torch.zeros(1, 700), cu_seqlens=torch.zeros(9, dtype=torch.int32),
                       max_seqlen=130)
        self.assertEqual(numbers["tokens.shape[1]"], 700)
        self.assertEqual(numbers["cu_seqlens.shape[0]"], 9)
        self.assertEqual(numbers["max_seqlen"], 130)

    def test_flags_and_texts_are_no_lengths(self):
        self.assertEqual(read(torch.zeros(3), return_dict=True, name="x", scale=0.5),
                         {"tokens.shape[0]": 3})

    def test_another_structure_is_noticed(self):
        reader = Reader(torch, Model(), (torch.zeros(2, 3),), {})
        for args in [(torch.zeros(2),), ({"ids": torch.zeros(2, 3)},), ()]:
            with self.assertRaises(Exception):
                reader.read(args, {})

    def test_a_mask_of_the_same_shape_is_left_out_after_a_while(self):
        reader = None
        for n in range(STUDIED_CALLS + 1):
            args = (torch.zeros(4, 7 + n), torch.zeros(4, 7 + n))
            reader = reader or Reader(torch, Model(), args, {})
            numbers = reader.read(args, {})
        self.assertEqual(reader.names, ["tokens.shape[0]", "tokens.shape[1]"])
        self.assertEqual(numbers, [4, 7 + STUDIED_CALLS])

    def test_inputs_without_end_are_cut(self):
        loop = []
        loop.append(loop)
        self.assertEqual(read(loop), {})
        self.assertLessEqual(len(read([torch.zeros(1, 2)] * 1000)), 32)


if __name__ == "__main__":
    unittest.main()
