"""How the final model does at each client, on samples that the client kept out of training
(data.client_test): in a simulation, where all of them are here.
"""

from __future__ import annotations

from typing import Any

import torch

from gcfl.base.data_types import Tree
from gcfl.data import Federation
from gcfl.models.network import Network


def tested(network: Network, model: Tree, federation: Federation) -> dict[str, list[Any]]:
    """By client: how many samples it kept, the share whose observed label the model gives, and,
    where somebody knows it, the share whose true label it gives; None for a client that kept none.
    Nothing where nobody was asked.
    """
    if federation.client_test is None:
        return {}
    clients, truth = federation.clients, federation.truth
    found: dict[str, list[Any]] = {"samples": [], "accuracy": []}
    if truth is not None:
        found["true_accuracy"] = []
    for client in range(len(federation.client_test)):
        places = torch.from_numpy(federation.client_test[client])
        found["samples"].append(len(places))
        labels = {"accuracy": clients.y[places]}
        if truth is not None:
            rows = clients.ids[federation.client_test[client]]
            labels["true_accuracy"] = torch.from_numpy(truth.labels[rows])
        answers = None
        if len(places):
            answers = network.outputs(model, clients.x[places]).logits.argmax(1).cpu()
        for name, wanted in labels.items():
            right = None if answers is None else float((answers == wanted).double().mean())
            found[name].append(right)
    return found
