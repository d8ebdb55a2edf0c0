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


def read_by(reader, *args, **kwargs):
    numbers = reader.read(args, kwargs)
    return dict(zip(reader.names, numbers))


def read(*args, module=None, **kwargs):
    return read_by(Reader(torch, module or Model()), *args, **kwargs)


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

        reader = Reader(torch, Model())
        names = ["tokens.count", "tokens.elements", "tokens.longest[0]", "tokens.longest[1]"]
        self.assertEqual(read_by(reader, samples(5, 2, 7, 1, 3)), dict(zip(names, [5, 72, 7, 4])))
        # The last batch of an epoch is smaller.
        self.assertEqual(read_by(reader, samples(9, 2)), dict(zip(names, [2, 44, 9, 4])))
        self.assertEqual(read_by(reader, [torch.zeros(3)]), {"tokens[0].shape[0]": 3})
        self.assertEqual(read_by(reader, []), {})

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
        self.assertEqual(numbers["sum of cu_seqlens"], 0)
        self.assertEqual(numbers["tokens.shape[1]"], 700)
        self.assertEqual(numbers["cu_seqlens.shape[0]"], 9)
        self.assertEqual(numbers["max_seqlen"], 130)

    def test_lengths_of_samples_on_the_host(self):
        told = {"number": 3, "sum": 10, "longest": 5, "sum of squares": 38}
        mask = torch.zeros(3, 6, dtype=torch.long)
        for row, length in enumerate((5, 2, 3)):
            mask[row, :length] = 1
        positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 0, 1, 2]])
        for name, value in (("seqlens", [5, 2, 3]), ("lengths", torch.tensor([5, 2, 3])),
                            ("cu_seqlens_q", torch.tensor([0, 5, 7, 10], dtype=torch.int32)),
                            ("attention_mask", mask), ("attention_mask", mask.bool()),
                            ("position_ids", positions), ("position_ids", positions[0])):
            numbers = read(torch.zeros(1), **{name: value})
            self.assertEqual({what: numbers.get(f"{what} of {name}") for what in told}, told, name)
            # As many numbers for other lengths.
            reader = Reader(torch, Model())
            read_by(reader, torch.zeros(1), **{name: value})
            self.assertEqual(read_by(reader, torch.zeros(1), **{name: value[:2]})
                             .get(f"sum of {name}") is None, False, name)

    def test_lengths_that_stay_the_same_are_left_out_after_a_while(self):
        for varies in (False, True):
            reader = Reader(torch, Model())
            for n in range(STUDIED_CALLS + 1):  # a constant sum, as packed rows have
                told = read_by(reader, lengths=[8 + n, 40 - n] if varies else [24, 24])
            self.assertEqual("sum of squares of lengths" in told, varies)

    def test_many_samples_have_no_lengths_now_and_then(self):
        reader = Reader(torch, Model())
        for count in (3, 300, 3, 300):
            told = read_by(reader, torch.zeros(4), position_ids=torch.arange(4).repeat(count))
            self.assertEqual(told["position_ids.shape[0]"], 4 * count)
            self.assertEqual(told.get("number of position_ids"), 3 if count == 3 else None)

    def test_whole_numbers_that_are_no_lengths(self):
        for name, value in (("labels", torch.tensor([5, 2, 3])), ("size", (224, 224)),
                            ("attention_mask", torch.zeros(3, 6)),
                            ("lengths", torch.zeros(2000, dtype=torch.long)),
                            ("attention_mask", torch.zeros(512, 512, dtype=torch.long))):
            numbers = read(torch.zeros(1), **{name: value})
            self.assertFalse([n for n in numbers if " of " in n], name)

    def test_nothing_is_computed_where_it_would_be_recorded(self):
        reader = Reader(torch, Model())
        lengths = torch.tensor([5, 2, 3])
        self.assertEqual(len(read_by(reader, lengths=lengths)), 5)

        class Traced(torch.nn.Module):
            def forward(self, lengths):
                told.append(read_by(reader, lengths=lengths))
                return lengths + 1

        told = []
        graph = str(torch.jit.trace(Traced(), (lengths,), check_trace=False).graph)
        self.assertEqual([list(numbers) for numbers in told], [["lengths.shape[0]"]])
        self.assertNotIn("sum", graph)
        self.assertEqual(len(read_by(reader, lengths=lengths)), 5)

    def test_containers_of_graph_learning(self):
        class Data:  # as torch_geometric's
            def __init__(self, **items):
                self.items = items

            def to_dict(self):
                return dict(self.items)

            def __getitem__(self, key):
                return self.items[key]

        Data.__module__ = "torch_geometric.data.data"
        reader = Reader(torch, Model())
        for edges in (7, 9):
            self.assertEqual(
                read_by(reader, Data(x=torch.zeros(4, 3), edge_index=torch.zeros(2, edges))), {
                    "tokens['x'].shape[0]": 4, "tokens['x'].shape[1]": 3,
                    "tokens['edge_index'].shape[0]": 2, "tokens['edge_index'].shape[1]": edges})

    def test_flags_and_texts_are_no_lengths(self):
        self.assertEqual(read(torch.zeros(3), return_dict=True, name="x", scale=0.5),
                         {"tokens.shape[0]": 3})

    def test_inputs_of_another_structure_are_read_as_they_are(self):
        reader = Reader(torch, Model())
        self.assertEqual(read_by(reader, torch.zeros(2, 3)),
                         {"tokens.shape[0]": 2, "tokens.shape[1]": 3})
        self.assertEqual(read_by(reader, torch.zeros(2)), {"tokens.shape[0]": 2})
        self.assertEqual(read_by(reader, {"ids": torch.zeros(2)}), {"tokens['ids'].shape[0]": 2})
        self.assertEqual(read_by(reader), {})

    def test_optional_inputs_are_never_forgotten(self):
        def inputs(n, how):
            text, picture = torch.zeros(2, 5 + n), torch.zeros(1 + n)
            if how == "keyword":
                return (text,), {"pixels": picture} if n % 3 else {}
            if how == "none":
                return (text,), {"pixels": picture if n % 3 else None}
            return ({"text": text, **({"pixels": picture} if n % 3 else {})},), {}

        for how in ("keyword", "none", "dictionary"):
            reader = Reader(torch, Model())
            for n in range(2 * STUDIED_CALLS):
                args, kwargs = inputs(n, how)
                told = list(read_by(reader, *args, **kwargs).values())
                self.assertEqual(told, [2, 5 + n] + ([1 + n] if n % 3 else []), how)

    def test_an_input_that_comes_first_after_many_calls_is_told(self):
        reader = Reader(torch, Model())
        for n in range(2 * STUDIED_CALLS):
            read_by(reader, torch.zeros(5 + n), mask=torch.zeros(5 + n))
        told = read_by(reader, torch.zeros(9), mask=torch.zeros(9), pixels=torch.zeros(4))
        self.assertEqual(told, {"tokens.shape[0]": 9, "pixels.shape[0]": 4})

    def test_calls_built_alike_have_the_same_names(self):
        reader = Reader(torch, Model())
        names = set()
        for n in range(4 * STUDIED_CALLS):
            read_by(reader, torch.zeros(5 + n), pixels=torch.zeros(n) if n % 2 else None)
            if n >= STUDIED_CALLS:
                names.add(id(reader.names))
        self.assertEqual(len(names), 2)

    def test_a_mask_of_the_same_shape_is_left_out_after_a_while(self):
        reader = Reader(torch, Model())
        for n in range(STUDIED_CALLS + 1):
            told = read_by(reader, torch.zeros(4, 7 + n), torch.zeros(4, 7 + n))
        self.assertEqual(told, {"tokens.shape[0]": 4, "tokens.shape[1]": 7 + STUDIED_CALLS})

    def test_inputs_without_end_are_cut(self):
        loop = []
        loop.append(loop)
        self.assertEqual(read(loop), {})
        self.assertLessEqual(len(read([torch.zeros(1, 2)] * 1000)), 32)


if __name__ == "__main__":
    unittest.main()
