"""Settings of training, for every party, of what the server does with its own clean set, of the
audit at the end, of privacy, and of how rounds are run.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, ValidationInfo

from gcfl.base.options import (
    Count,
    NonNegative,
    Options,
    Positive,
    PositiveShare,
    allows,
    at_least,
    within,
)


def _with_cross_entropy(smoothing: float, info: ValidationInfo) -> float:
    if smoothing and info.data.get("loss") != "cross-entropy":
        raise ValueError(f"has no effect with the loss {info.data.get('loss')!r}")
    return smoothing


class TrainOptions(Options):
    """[train]"""

    lr: Positive = 0.01
    """learning rate of local SGD"""
    momentum: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.9
    """momentum of local SGD; its state is fresh for every client and round"""
    weight_decay: NonNegative = 5e-4
    """weight decay of local SGD"""
    batch: Count = 32
    """samples per step"""
    epochs: Count = 1
    """passes over the coreset per round"""
    steps: Count | None = None
    """fixed number of steps per round instead of epochs"""
    min_steps: Count = 1
    """at least so many steps per round, by more passes over a coreset of few batches"""
    schedule: Literal["cosine", "constant"] = "cosine"
    """learning rate over the rounds"""
    loss: Literal["cross-entropy", "gce", "sce", "corrected"] = "cross-entropy"
    """loss of a sample; gce and sce (generalised, symmetric) bear with wrong labels, corrected with
    those of an estimated rate ([labels])
    """
    smoothing: Annotated[
        float, AfterValidator(within(0, 1, high_open=True)), AfterValidator(_with_cross_entropy)
    ] = 0.0
    """cross-entropy: share of each label that is spread over all classes"""
    gce_q: PositiveShare = 0.7
    """gce: (1 - p^q) / q; near 0 it is cross-entropy, 1 the mean absolute error"""
    sce_alpha: NonNegative = 0.1
    """sce: weight of cross-entropy"""
    sce_beta: NonNegative = 1.0
    """sce: weight of reverse cross-entropy"""
    sce_log_zero: Annotated[
        float, AfterValidator(within(-math.inf, 0, low_open=True, high_open=True))
    ] = -4.0
    """sce: A, what the logarithm of a label's zeros is taken as in reverse cross-entropy"""
    clip: Positive | None = None
    """largest norm of a step's gradient; longer ones are shortened to it"""
    augment: Literal["none", "crop", "flip+crop", "auto"] = "none"
    """images: each shifted by up to an eighth of its side, at most 4 pixels, and mirrored at
    random; auto: crop, with flips for sets that are known to bear them, and none for tables
    """
    mixup: NonNegative = 0.0
    """α: each batch is mixed with itself in another order, by a share drawn from Beta(α, α); 0: off
    """

    def passes(self, batches: int) -> int:
        """Over a client's samples in one round, that are so many batches."""
        return max(self.epochs, -(-self.min_steps // batches))


class CleanOptions(Options):
    """[clean]: what the server does with its clean set besides handing out gradients of it."""

    warm_start: Annotated[int, AfterValidator(at_least(0))] | Literal["auto"] = 0
    """epochs on the server's clean set before the first round; auto: by cross-validation on it"""
    warm_schedule: Literal["constant", "cosine"] = "constant"
    """learning rate over the warm start: that of the first round, or from there down to 0"""
    lr: Positive | Literal["auto"] | None = None
    """learning rate on the server's clean set, in warm start and rounds; unset: train.lr; auto: by
    cross-validation on it
    """
    fine_tune: Literal["never", "each", "end"] = "never"
    """train on the server's clean set too: after each round, or after the last"""
    fine_tune_epochs: Count = 1
    """epochs of fine-tuning"""
    fine_tune_lr: Positive | None = None
    """learning rate of fine-tuning; unset: that of the round (each), or a tenth of train.lr (end)
    """
    takes_part: bool = False
    """the server trains on its clean set as one more client"""
    hold_out: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.0
    """share of the server's clean set that nothing trains on or selects by, for keep, patience and
    contribution
    """
    keep: Literal["last", "best"] = "last"
    """the final model: of the last round, or of the round with the lowest loss on what is held out
    """
    patience: Count | None = None
    """stop after so many rounds without a lower loss on what is held out"""
    contribution: bool = False
    """record how much each client's update helps: its norm, its cosine with the server's own step,
    its weight
    """
    contribution_every: Count = 10
    """contribution: rounds between two that also record what leaving each client out costs"""

    def changed(self) -> list[str]:
        """The settings that are not at their default."""
        fields = type(self).model_fields
        return [name for name, field in fields.items() if getattr(self, name) != field.default]


class AuditOptions(Options):
    """[audit]"""

    at_end: bool = False
    """on Flower: after the last round each site judges its labels and writes its findings into its
    own folder; here, gcfl audit does it
    """
    share: Literal["none", "rate", "matrix"] = "none"
    """what sites tell the server of their findings: nothing; size and estimated rate; also counts
    by class, those under 5 withheld; other than none implies at_end
    """
    threshold: Annotated[float, AfterValidator(within(0, 1))] = 0.5
    """a label is called wrong above this probability"""
    correct: Annotated[float, AfterValidator(within(0, 1))] = 0.9
    """a wrong label is corrected where another is at least so likely, else its sample is dropped"""

    @property
    def asked(self) -> bool:
        """Whether sites audit at the end."""
        return self.at_end or self.share != "none"


@allows("two numbers, low and high")
def _range(ends: list[float] | None) -> list[float] | None:
    if ends is not None and not (len(ends) == 2 and -math.inf < ends[0] < ends[1] < math.inf):
        raise ValueError("must be two numbers, the lowest and the highest value of an input")
    return ends


class PrivacyOptions(Options):
    """[privacy]: differential privacy of what leaves the server's clean set, and of what leaves the
    clients. Needs the extra `privacy`.
    """

    clean_epsilon: Positive | None = None
    """ε of all that leaves the server's clean set, where one sample is added or removed; unset: off
    """
    client_epsilon: Positive | None = None
    """ε of all that is made of the clients' updates, where one client's data is replaced; unset:
    off
    """
    delta: Annotated[float, AfterValidator(within(0, 1, low_open=True, high_open=True))] = 1e-5
    """δ, of both"""
    clean_clip: Positive = 1.0
    """largest norm of what a clean sample adds to a sum; longer ones are shortened to it"""
    clean_noise: Positive | None = None
    """noise on such a sum, in multiples of clean_clip; unset: what spends the budget evenly"""
    client_clip: Positive = 1.0
    """largest norm of a client's update; longer ones are shortened to it"""
    client_noise: Positive | None = None
    """noise on the sum of the updates (central) or on each (local), in multiples of client_clip;
    unset: what spends the budget by the last round
    """
    client_where: Literal["central", "local"] = "central"
    """who adds the clients' noise: the server, which is trusted, or each client itself"""
    input_range: Annotated[list[float] | None, AfterValidator(_range)] = None
    """lowest and highest value of an input, by which all are normalised with clean_epsilon; unset:
    0 and 255 for images of whole numbers
    """
    simulated_seed: bool = False
    """noise and cohorts from the public seed, for simulations that repeat: protects nobody"""


class EngineOptions(Options):
    """[engine]"""

    workers: Count = 1
    """client processes; changes the time, never the result"""
    vectorised: bool = False
    """train many clients at once: for small models; agrees with the loop to 1e-5 (moon: less)"""
    device: str = "cpu"
    """cpu, or cuda, cuda:1, mps where torch has them"""
    linear: Literal["torch", "onednn"] = "torch"
    """what multiplies matrices in linear layers; onednn is faster on processors that are not
    Intel's, and differs from torch by rounding
    """
    checkpoint_every: Count = 1
    """rounds between two checkpoints"""
    evaluate_every: Count = 1
    """rounds between two evaluations on the test set"""
    evaluate_on: Literal["test", "held-out"] = "test"
    """accuracy is of the test set, or of what clean.hold_out keeps back (the test set is unseen)"""
