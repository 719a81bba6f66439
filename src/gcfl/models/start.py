"""What a network starts from: weights of a file, and which of its parts stay as they are."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from gcfl.base.data_types import Tree
from gcfl.base.errors import ModelError
from gcfl.models.network import Network
from gcfl.models.networks import MODELS, ModelOptions

log = logging.getLogger("gcfl")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_RUN = "model.safetensors"  # of a run folder
_GROUP = "model/"  # before the names of its weights


def network_of(
    module: nn.Module,
    example: Tensor,
    classes: int,
    normaliser: tuple[Tensor, Tensor] | None,
    options: ModelOptions,
    device: str = "cpu",
    tokens: bool | None = None,
) -> Network:
    """The module as a network, with the weights and the frozen parts that the options say."""

    def view(still: tuple[str, ...] = ()) -> Network:
        keep = options.buffers == "keep"
        return Network(
            module,
            example,
            classes,
            normaliser,
            options.head,
            device,
            keep_buffers=keep,
            still=still,
            tokens=tokens,
        )

    network = view()
    if options.weights is not None:
        load_weights(network, weights_file(options.weights))
    if options.freeze is None:
        return network
    return view(_freeze(network, options.freeze))


def warn_of_random(module: nn.Module, options: ModelOptions) -> None:
    """Where layers of a built-in network are frozen as they were drawn."""
    frozen = any(not part.requires_grad for part in module.parameters())
    if frozen and options.weights is None and options.name in MODELS:
        log.warning(
            "model.freeze keeps layers of %s as they were drawn, at random: give weights to start "
            "from (model.weights)",
            options.name,
        )


def weights_file(name: str) -> Path:
    """The file of weights; of a run folder, its model."""
    path = Path(name).expanduser().absolute()
    if path.suffix in _PICKLES:
        raise ModelError(
            f"model.weights {path} is a pickle, which can run code and is never read: where you "
            "trust it, convert it with safetensors.torch.save_file(torch.load(path, "
            "weights_only=True), 'weights.safetensors')"
        )
    path = path / _RUN if path.is_dir() else path
    if not path.is_file():
        raise ModelError(f"model.weights: there is no file {path}")
    return path


def weights_digest(options: ModelOptions) -> str:
    """Of the file of weights; nothing where there is none."""
    if options.weights is None:
        return ""
    with open(weights_file(options.weights), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def load_weights(network: Network, path: Path) -> None:
    """The file's tensors into the network's module. A head that the file lacks, or has for another
    number of classes, stays as it was made.
    """
    found, state = _read(path), network.module.state_dict()
    head = f"{network.head_name}." if network.head_name else None
    # tied tensors are one: a file may have either name
    there = {tensor.data_ptr() for name, tensor in state.items() if name in found}
    lacking = [name for name in state if name not in found and state[name].data_ptr() not in there]
    extra = [name for name in found if name not in state]
    unlike = [name for name in found if name in state and found[name].shape != state[name].shape]
    fresh = head is not None and any(name.startswith(head) for name in lacking + unlike)
    if fresh and head is not None:
        found = {name: tensor for name, tensor in found.items() if not name.startswith(head)}
        lacking, extra, unlike = (
            [name for name in names if not name.startswith(head)]
            for names in (lacking, extra, unlike)
        )
    for names, sentence in ((extra, "has {} that the model lacks"), (lacking, "lacks {}")):
        if names:
            raise ModelError(f"model.weights {path} {sentence.format(_listed(names))}")
    if unlike:
        name = unlike[0]
        raise ModelError(
            f"model.weights {path}: {name!r} has shape {tuple(found[name].shape)}, the model's "
            f"has {tuple(state[name].shape)}"
        )
    for name, tensor in found.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"model.weights {path}: {name!r} has NaN or infinite values")
    network.module.load_state_dict(found, strict=False)
    if fresh:
        log.info("%s has no last layer %r that fits: it starts afresh", path.name, head)


def _read(path: Path) -> Tree:
    try:
        with safe_open(path, "pt") as file:
            ours = "gcfl" in (file.metadata() or {})
            names = [name for name in file.keys() if not ours or name.startswith(_GROUP)]  # noqa: SIM118
            return {
                name.removeprefix(_GROUP if ours else ""): file.get_tensor(name) for name in names
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"model.weights {path} is no safetensors file ({error})") from None


def _freeze(network: Network, freeze: str | list[str]) -> tuple[str, ...]:
    """Take gradients from the frozen parameters; the names of the modules that hold still."""
    parameters = dict(network.module.named_parameters())
    if freeze == "body":
        head = f"{network.require_head()}."
        for name, part in parameters.items():
            part.requires_grad_(part.requires_grad and name.startswith(head))
        return ("",)
    still: list[str] = []
    for prefix in freeze:
        own = [name for name in parameters if within(name, prefix)]
        if not own:
            names = dict.fromkeys(name.partition(".")[0] for name in parameters)
            raise ModelError(
                f"model.freeze: the model has no {prefix!r}; it has {_listed(list(names))}"
            )
        for name in own:
            parameters[name].requires_grad_(False)
        still += [name for name, _ in network.module.named_modules() if within(name, prefix)]
    return tuple(still)


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is the prefix, or below it; everything is below ''."""
    return not prefix or name == prefix or name.startswith(f"{prefix}.")


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
