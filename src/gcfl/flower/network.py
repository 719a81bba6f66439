"""The model of an app of one's own as our network, and the weights that its strategy sends."""

from __future__ import annotations

import copy
from collections.abc import Callable

from flwr.app import ArrayRecord
from torch import nn

from gcfl.base import rng
from gcfl.base.data_types import Shard
from gcfl.base.errors import ConfigError
from gcfl.flower.samples import check_labels
from gcfl.flower.transport import to_tree
from gcfl.models.network import Network


def network_of(model: nn.Module | Callable[[], nn.Module], validation: Shard) -> Network:
    """The network in a copy of its own; the clean samples must fit it."""
    with rng.isolated(0, "model"):  # making a module draws its first weights
        module = copy.deepcopy(model) if isinstance(model, nn.Module) else model()
    if not isinstance(module, nn.Module):
        raise ConfigError(
            "model must be a torch module or a function that makes one, got "
            f"{type(module).__name__}"
        )
    device = next((str(part.device) for part in module.parameters()), "cpu")
    network = Network(module, validation.x, None, device=device, as_given=True)
    check_labels(validation.y, network.classes, "the clean set's")
    return network


def load(network: Network, arrays: ArrayRecord) -> None:
    """The strategy's arrays into the network: by name, or in order where names are numbers."""
    state, given = network.module.state_dict(), to_tree(arrays)
    if not given.keys() & state.keys() and len(given) == len(state):
        given = dict(zip(state, given.values(), strict=True))
    unknown = [name for name in given if name not in state]
    absent = [name for name in network.trained if name not in given and name in state]
    known = [name for name in given if name in state]
    unlike = [name for name in known if given[name].shape != state[name].shape]
    wrong = unknown + absent + unlike
    if wrong:
        raise ConfigError(
            "the model given to GCFL is not the one that the strategy trains: they differ in "
            f"{wrong[0]!r}"
        )
    network.module.load_state_dict(given, strict=False)
