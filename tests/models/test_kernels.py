"""Linear layers by oneDNN: the numbers of torch's own, to rounding, and the same bits again."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from gcfl.base.errors import ConfigError
from gcfl.models.kernels import take_onednn
from helpers import run, same_bits


def twins(bias: bool, width: int = 400) -> tuple[nn.Sequential, nn.Sequential]:
    """The same network twice; the second one computes by oneDNN."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(300, width, bias=bias), nn.ReLU(), nn.Linear(width, 3))
    other = nn.Sequential(nn.Linear(300, width, bias=bias), nn.ReLU(), nn.Linear(width, 3))
    other.load_state_dict(plain.state_dict())
    take_onednn(other)
    return plain, other


def derivatives(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    output = network(x)
    tensors = [x, *network.parameters()]
    return [output.detach(), *torch.autograd.grad(output.square().sum(), tensors)]


@pytest.mark.parametrize("n", [1, 7, 64])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_torch_in_double_precision(n, bias):
    plain, other = twins(bias)
    x = torch.randn(n, 300, generator=torch.Generator().manual_seed(n))
    found = derivatives(other, x)
    for mine, exact in zip(found, derivatives(plain.double(), x.double()), strict=True):
        assert mine.dtype == torch.float32
        assert torch.allclose(mine.double(), exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))


def test_large_layers_alone_are_changed_and_what_it_cannot_do_goes_torch_s_way():
    plain, other = twins(True)
    assert "forward" in vars(other[0])
    assert "forward" not in vars(other[2])
    x = torch.randn(2, 5, 300)
    assert torch.equal(other(x), plain(x))
    assert torch.equal(other.double()(x.double()), plain.double()(x.double()))


def test_a_run_has_the_same_name_nearly_the_same_model_and_the_same_bits_again(tmp_path):
    base = {
        "method": "robust",
        "rounds": 3,
        "model": {"name": "mlp", "hidden": [64, 1024]},
        "clean": {"warm_start": 2, "lr": 0.03},
    }
    plain = run(tmp_path / "torch", **base)
    first = run(tmp_path / "first", **base, engine={"linear": "onednn"})
    second = run(tmp_path / "second", **base, engine={"linear": "onednn", "workers": 2})
    assert plain.folder.name == first.folder.name
    same_bits(first.folder, second.folder)
    ours, theirs = (load_file(one.folder / "model.safetensors") for one in (first, plain))
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-3
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    "settings",
    [{"engine": {"vectorised": True}}, {"privacy": {"clean_epsilon": 8.0, "simulated_seed": True}}],
)
def test_what_takes_many_gradients_at_once_is_refused(settings, tmp_path):
    engine = {"linear": "onednn", **settings.pop("engine", {})}
    with pytest.raises(ConfigError, match=r"engine\.linear onednn cannot be had with"):
        run(tmp_path, method="gcfl", engine=engine, **settings)
