"""A body that never changes looks at each sample once: rounds are then played on its features.

Where only the last layer is trained, and nothing random acts on the inputs or in the body, training
on h(x) is training on x. Features are kept in the data home, by what made them. The result agrees
with a run on the inputs to rounding (1e-5), since batches are cut otherwise.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from gcfl.base import rng
from gcfl.base.data_types import Shard, Tree
from gcfl.base.files import open_npy, write_npy
from gcfl.data import Federation
from gcfl.data.source import cache_folder
from gcfl.engine.measurement import Ahead, Laps
from gcfl.methods import Method, Setting
from gcfl.models.fingerprint import architecture, sources_of
from gcfl.models.network import Network

log = logging.getLogger("gcfl")
_WORTH = 1 << 20  # numbers of inputs from which on features are kept on disk
_BLOCK = 1024


def head_only(network: Network) -> bool:
    """Whether the last layer alone is trained, on a body that has weights of its own."""
    if not network.head_name:
        return False
    own = {f"{network.head_name}.{leaf}" for leaf in ("weight", "bias")}
    return set(network.trained) <= own and not set(network.tree()) <= own


def holds_still(network: Network, example: Tensor) -> bool:
    """Whether only the last layer changes, and the body neither draws at random nor sees the
    difference between training and not.
    """
    if not head_only(network) or set(network.sent) != set(network.trained):
        return False
    tree, x = network.tree(), network.prepare(example[:2])
    with torch.no_grad(), rng.isolated(0, "probe"):
        before = torch.get_rng_state()
        trained = network(tree, x, training=True)
        drew = not torch.equal(before, torch.get_rng_state())
        return not drew and torch.equal(trained.features, network(tree, x).features)


def can_keep(method: Method, setting: Setting, example: Tensor) -> bool:
    """Whether clients train on samples as they are, and only the last layer."""
    train = setting.train
    plain = train.augment == "none" and not train.mixup and method.local.views == 1
    return plain and holds_still(setting.network, example)


class Head(nn.Module):
    """The last layer alone, under its own name."""

    def __init__(self, name: str, layer: nn.Module) -> None:
        super().__init__()
        self._path = name
        *path, leaf = name.split(".")
        place: nn.Module = self
        for step in path:
            place.add_module(step, nn.Module())
            place = place.get_submodule(step)
        place.add_module(leaf, layer)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule(self._path)(x)
        return logits


@dataclass(frozen=True)
class Frozen:
    """The whole network, its weights at the start, and the head, which is what rounds are about."""

    whole: Network
    tree: Tree
    head: Network
    shape: tuple[int, ...]  # of a sample

    @classmethod
    def of(cls, network: Network, example: Tensor) -> Frozen:
        tree = network.tree()
        features = network.outputs(tree, example[:2]).features.cpu()
        module = Head(network.require_head(), copy.deepcopy(network.head))  # type: ignore[arg-type]
        device = str(network.device)
        head = Network(module, features, network.classes, None, network.head_name, device)
        return cls(network, tree, head, tuple(example.shape[1:]))

    def features(self, x: Tensor) -> Tensor:
        """(n, d) of samples x (n, ...), computed or found in the data home."""
        if x.numel() < _WORTH:
            return self._computed(x)
        path = cache_folder() / f"features-{self._key(x)}.npy"
        kept = open_npy(path)
        if kept is not None and kept.shape == (len(x), self.whole.width):
            return torch.from_numpy(kept)
        found = self._computed(x)
        try:
            write_npy(path, found.numpy())
        except OSError as error:  # a full disk: they are here
            log.warning("the features of %d samples are not kept: %s", len(x), error.strerror)
        return found

    def _computed(self, x: Tensor) -> Tensor:
        if not len(x):
            return torch.empty((0, self.whole.width))
        return self.whole.outputs(self.tree, x).features.cpu()

    def applied(self, federation: Federation, held_out: Shard | None) -> Looked:
        """All samples of a run through the body."""
        laps, clients = Laps(), federation.clients
        validation, test = (
            replace(shard, x=self.features(shard.x))
            for shard in (federation.validation, federation.test)
        )
        if held_out is not None:
            held_out = replace(held_out, x=self.features(held_out.x))
        seen = replace(
            federation,
            clients=replace(clients, x=self.features(clients.x)),
            validation=validation,
            test=test,
            normaliser=None,
        )
        # Evaluation does not count, here as elsewhere.
        samples = len(clients.x) + len(validation) + (len(held_out) if held_out else 0)
        log.info("the body is frozen: its features of all samples are computed once and kept")
        return Looked(seen, held_out, Ahead(samples, laps.lap()))

    def _key(self, x: Tensor) -> str:
        """Of all that features depend on."""
        network, key = self.whole, hashlib.blake2b(digest_size=12)
        key.update(f"1|{torch.__version__}|{architecture(network.module)}".encode())
        key.update(sources_of(network.module).encode())
        key.update(f"|{network.device.type}|{tuple(x.shape)}|{x.dtype}".encode())
        body = {name: tensor for name, tensor in self.tree.items() if name not in network.trained}
        body |= {f"/{place}": part for place, part in enumerate(network.normaliser or ())}
        for name, tensor in sorted(body.items()):
            key.update(name.encode())
            key.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
        for start in range(0, len(x), _BLOCK):  # x may be a file larger than memory
            key.update(np.ascontiguousarray(x[start : start + _BLOCK].numpy()).data)
        return key.hexdigest()


@dataclass(frozen=True)
class Looked:
    """A federation of features, and what it took to look at all samples."""

    federation: Federation
    held_out: Shard | None
    cost: Ahead
