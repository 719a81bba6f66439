from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcfl.base.codec import decode, encode, size
from gcfl.base.errors import RunError

names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)
tensors = st.builds(
    lambda shape, dtype: (
        torch.arange(int(torch.tensor(shape).prod()) if shape else 1).reshape(shape).to(dtype)
    ),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]),
)


@given(
    st.dictionaries(names, st.dictionaries(names, tensors, max_size=4), max_size=4),
    st.dictionaries(names, st.integers()),
)
def test_groups_survive(groups, meta):
    back, facts = decode(encode(groups, meta))
    assert facts == meta
    assert back.keys() == groups.keys()
    for group, tree in groups.items():
        assert back[group].keys() == tree.keys()
        for name, tensor in tree.items():
            assert back[group][name].dtype == tensor.dtype
            assert torch.equal(back[group][name], tensor)


def test_tensor_names_may_hold_separators_and_tied_tensors_are_kept():
    shared = torch.ones(3)
    groups, _ = decode(encode({"a": {"x/y.z": shared, "tied": shared}}))
    assert torch.equal(groups["a"]["x/y.z"], groups["a"]["tied"])


def test_layout_does_not_matter():
    image = torch.randn(2, 3, 4, 5)
    groups, _ = decode(encode({"a": {"x": image.to(memory_format=torch.channels_last)}}))
    assert torch.equal(groups["a"]["x"], image)


@pytest.mark.parametrize("blob", [b"", b"nonsense", encode({"a": {"x": torch.ones(100)}})[:-7]])
def test_damage_is_told(blob):
    with pytest.raises(RunError, match="the file is damaged"):
        decode(blob, "the file")


def test_size_counts_numbers_only():
    assert (
        size({"a": torch.zeros(3, 4), "b": torch.zeros(2, dtype=torch.int64)}) == 3 * 4 * 4 + 2 * 8
    )


def test_equal_trees_give_equal_bytes():
    groups = {name: {f"{name}{i}": torch.full((i,), 1.0) for i in range(5)} for name in "abcdef"}
    backwards = {name: dict(reversed(groups[name].items())) for name in reversed(groups)}
    assert len({encode(value, {"x": 1}) for value in (groups, backwards) for _ in range(5)}) == 1
