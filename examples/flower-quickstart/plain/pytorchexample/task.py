"""The model, the data, and how to train and test."""

import functools

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
SERVER, TEST = 100, 270  # samples that no client holds
WRONG = 0.4  # share of wrong labels in the clients' training data


class Net(nn.Module):
    """Two layers on 8 x 8 pixels."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 64)
        self.out = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x.flatten(1))))


@functools.cache
def load_all(seed):
    """All digits, shuffled: the server's, the test set, the clients'."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x, y = (
        torch.tensor(images[order] / 16, dtype=torch.float32).view(-1, 1, 8, 8),
        torch.tensor(labels[order]),
    )
    return [
        TensorDataset(*part)
        for part in zip(*(t.tensor_split([SERVER, SERVER + TEST]) for t in (x, y)), strict=True)
    ]


def load_data(partition_id, num_partitions, batch_size, seed):
    """One client's loaders: 80% to train on, with wrong labels among them, 20% to test on, with
    right ones.
    """
    x, y = load_all(seed)[2].tensors
    draw = np.random.default_rng([seed, 1])
    holder = np.empty(len(y), dtype=int)
    for label in range(CLASSES):  # each class is spread unevenly
        members = np.flatnonzero(y.numpy() == label)
        holder[members] = draw.choice(
            num_partitions, len(members), p=draw.dirichlet(np.full(num_partitions, 0.4))
        )
    mine = np.flatnonzero(holder == partition_id)
    draw = np.random.default_rng([seed, 2, partition_id])
    train, test = np.split(draw.permutation(mine), [max(1, round(0.8 * len(mine)))])
    noisy = y[train].clone()
    flipped = draw.permutation(len(train))[: round(WRONG * len(train))]
    noisy[flipped] = (
        noisy[flipped] + torch.tensor(draw.integers(1, CLASSES, len(flipped)))
    ) % CLASSES
    trainloader = DataLoader(TensorDataset(x[train], noisy), batch_size=batch_size, shuffle=True)
    return trainloader, DataLoader(TensorDataset(x[test], y[test]), batch_size=256)


def load_test(seed):
    return DataLoader(load_all(seed)[1], batch_size=256)


def train(net, trainloader, epochs, lr):
    """Train in place; the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    losses = []
    net.train()
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net, testloader):
    """Loss and accuracy; a client may have nothing to test on."""
    net.eval()
    loss, right, total = 0.0, 0, len(testloader.dataset)
    with torch.no_grad():
        for images, labels in testloader:
            logits = net(images)
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
    return loss / max(1, total), right / max(1, total)
