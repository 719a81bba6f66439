"""A model that does not end in a Linear serves every method that looks at its outputs alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gcfl
from gcfl.base.errors import ModelError
from gcfl.methods import WORDS, parse
from helpers import same_bits, tiny


class Scaled(nn.Module):
    """Cosines of the features and a vector for each class, times ten."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
        self.prototypes = nn.Parameter(torch.randn(10, 16))

    def forward(self, x):
        features = nn.functional.normalize(self.body(x), dim=1)
        return 10 * features @ nn.functional.normalize(self.prototypes, dim=1).T


def run(out, method, **changes):
    settings = tiny(**{"rounds": 2, "method": method, **changes})
    settings.pop("model")
    return gcfl.run(model=Scaled, out=out, **settings)


def needs_head(word):
    slots = parse(word).items()
    return any(part().needs_head for part in slots.values())


def test_which_methods_need_the_last_layer():
    found = {word for word in WORDS if needs_head(word)}
    assert found >= {"gcfl", "gradmatch", "glister", "craig", "facility", "moon"} & set(WORDS)
    assert not found & {"fedavg", "fedprox", "scaffold", "random", "robust", "server-only", "sift"}


@pytest.mark.parametrize("word", list(WORDS))
def test_every_method_runs_or_says_why_not_before_any_work(tmp_path, word):
    if needs_head(word):
        with pytest.raises(ModelError, match=r"does not end in a Linear layer.*'body.1'"):
            run(tmp_path, word)
        assert not any(tmp_path.iterdir())
        return
    result = run(tmp_path, word)
    assert result.finished
    assert all(not record.left_out for record in result.rounds)


def test_workers_vectorised_clients_and_the_audit(tmp_path):
    result = run(tmp_path / "one", "robust", rounds=3)
    same_bits(
        result.folder, run(tmp_path / "two", "robust", rounds=3, engine={"workers": 2}).folder
    )
    stacked = run(tmp_path, "fedavg", engine={"vectorised": True})
    for name, tensor in run(tmp_path, "fedavg").model.tree.items():
        assert torch.allclose(tensor, stacked.model.tree[name], atol=1e-5)
    sites = gcfl.audit(result).sites
    assert len(sites) == 5
    assert all((site.strange >= 0).all() for site in sites)
