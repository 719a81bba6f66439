"""One round, over any transport: cohort, announce, exchange, check, merge, evaluate.

Nothing here knows a method by name, and nothing here writes a file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from gcfl.base import rng
from gcfl.base.data_types import Broadcast, Failure, Groups, Shard, Tree, Update
from gcfl.base.errors import RunError
from gcfl.base.record import CoresetUse, RoundRecord, Samples
from gcfl.engine.cost import Times, mean_loss, total, traffic
from gcfl.engine.evaluate import Scores, evaluate, mean_scores
from gcfl.engine.transport import Answers, Transport
from gcfl.methods import Method, ServerView, Setting
from gcfl.methods.own import SERVER, own_update, tuned, warmed
from gcfl.methods.replies import Replies, Stacked
from gcfl.methods.training import learning_rate

log = logging.getLogger("gcfl")
BEST = "best"  # the state's entry for the round with the lowest loss on what is held out


@dataclass(frozen=True)
class State:
    """Everything the server carries from one round to the next. `round` is the next one to play."""

    round: int
    model: Tree
    parts: Groups


@dataclass(frozen=True)
class Played:
    """The state after a round, its record, whose answers it used, and which of those clients chose
    a coreset in it.
    """

    state: State
    record: RoundRecord
    accepted: tuple[int, ...]
    selected: tuple[int, ...]


@dataclass(frozen=True)
class Rounds:
    """The server's side of a run."""

    setting: Setting
    method: Method
    validation: Shard
    test: Shard
    clients: int
    cohort: int
    transport: Transport
    evaluate_every: int = 1
    held_out: Shard | None = None
    names: tuple[str, ...] | None = None

    def begin(self) -> State:
        """The state before the first round: the network's own weights, each part's first state."""
        model = self.setting.network.tree()
        return State(
            0, model, {name: part.server_init(model) for name, part in self.method.parts.items()}
        )

    def called(self, client: int) -> str:
        """A client in a sentence: its number, and its name where it has one."""
        return f"client {client}" + (f" ({self.names[client]})" if self.names else "")

    def draw(self, round: int) -> tuple[int, ...]:
        """The round's clients, sorted: m of N without replacement, from (seed, round) alone."""
        if not self.method.server.uses_clients:
            return ()
        if self.cohort == self.clients:
            return tuple(range(self.clients))
        chosen = rng.stream(self.setting.seed, "cohort", round).choice(
            self.clients, self.cohort, replace=False, shuffle=False
        )
        return tuple(sorted(chosen.tolist()))

    def play(self, state: State) -> Played:
        """One round from a state to the next. A round with no valid answer is an error.

        Nothing outside the returned value changes, so a round that was interrupted can be played
        again; the caller commits the accepted clients' memory.
        """
        times, server = Times(), self.method.server
        view = ServerView(
            self.setting,
            state.round,
            state.model,
            self.validation,
            self.draw(state.round),
            population=self.clients,
        )
        with times.of("train"):
            view = replace(view, model=warmed(view, server))
        with times.of("select"):
            told = {
                name: part.announce(state.parts[name], view)
                for name, part in self.method.parts.items()
            }
        broadcasts = _broadcasts(view, told)
        answers = self.transport.exchange(broadcasts) if broadcasts else {}
        replies, left_out = self._accept(view, answers)
        for client, reason in left_out.items():
            log.warning("round %d: %s is left out: %s", state.round, self.called(client), reason)
        with times.of("train"):
            heard = (
                replies.plus(SERVER, own_update(view, self.method.local))
                if server.takes_part and view.clients
                else replies
            )
        with times.of("aggregate" if view.clients else "train"):
            parts, model = self._merge(state, view, replies, heard)
        with times.of("train"):
            model = tuned(view, server, model, "each")
        with times.of("evaluate"):
            after, validation_loss = self._judge(State(state.round + 1, model, parts))
        if self.over(after) and server.fine_tune == "end":
            with times.of("train"):
                after = self._ended(after, tuned(view, server, self.final(after), "end"))
        self._check(view, after.model)
        with times.of("evaluate"):
            scores = self._evaluate(after, view, replies)
        # Left out or not, an answer cost.
        received = (
            answers
            if isinstance(answers, Stacked)
            else Replies(
                {client: answer for client, answer in answers.items() if isinstance(answer, Update)}
            )
        )
        selected = tuple(client for client in replies if client in told["select"])
        record = RoundRecord(
            round=state.round,
            cohort=len(view.clients),
            left_out={str(client): reason for client, reason in left_out.items()},
            lr=learning_rate(self.setting.train, state.round, self.setting.rounds),
            train_loss=mean_loss(replies),
            accuracy=scores.accuracy if scores else None,
            loss=scores.loss if scores else None,
            per_class=scores.per_class if scores else None,
            validation_loss=validation_loss,
            samples=Samples(
                view.meter.forward + total(received, "forward"),
                view.meter.backward + total(received, "backward"),
            ),
            steps=view.meter.steps + total(received, "steps"),
            bytes=traffic(broadcasts, received, server.shares),
            coreset=CoresetUse(int(replies.examples.sum()), len(selected), None),
            time=times.with_clients(received),
        )
        return Played(after, record, tuple(replies), selected)

    def over(self, state: State) -> bool:
        """Whether the last round is played, or patience has run out."""
        patience, best = self.method.server.patience, state.parts.get(BEST)
        waited = (
            patience is not None
            and best is not None
            and state.round - 1 - int(best["round"]) >= patience
        )
        return waited or state.round >= self.setting.rounds

    def final(self, state: State) -> Tree:
        """The model that a finished run leaves."""
        best = state.parts.get(BEST, {})
        kept = {
            name.removeprefix("model."): tensor
            for name, tensor in best.items()
            if name.startswith("model.")
        }
        return kept or state.model

    def _ended(self, after: State, model: Tree) -> State:
        """With another final model than that of any round."""
        best = {
            name: tensor
            for name, tensor in after.parts.get(BEST, {}).items()
            if not name.startswith("model.")
        }
        return replace(
            after, model=model, parts={**after.parts, BEST: best} if best else after.parts
        )

    def _accept(self, view: ServerView, answers: Answers) -> tuple[Replies, dict[int, str]]:
        if isinstance(answers, Stacked):
            bad = {
                client: self._wrong(view.model, answers[client]) or ""
                for client in self._suspicious(answers)
            }
            replies: Replies = (
                answers.only(~np.isin(answers.clients, list(bad))) if bad else answers
            )
            left_out = dict(
                sorted(
                    {
                        **bad,
                        **{client: failure.reason for client, failure in answers.failures.items()},
                    }.items()
                )
            )
        else:
            valid: dict[int, Update] = {}
            left_out = {}
            for client, answer in answers.items():
                wrong = (
                    answer.reason
                    if isinstance(answer, Failure)
                    else self._wrong(view.model, answer)
                )
                if wrong is None and isinstance(answer, Update):
                    valid[client] = answer
                else:
                    left_out[client] = wrong or ""
            replies = Replies(valid)
        if left_out and not len(replies):
            client, reason = next(iter(left_out.items()))
            raise RunError(
                f"round {view.round}: no client gave a valid update ({self.called(client)}: "
                f"{reason})"
            )
        return replies, left_out

    def _suspicious(self, answers: Stacked) -> list[int]:
        """Clients with NaN or infinite values in what they sent."""
        finite = np.ones(len(answers), dtype=bool)
        for tree in (answers.delta, *answers.payload.values()):
            for tensor in tree.values():
                finite &= torch.isfinite(
                    tensor.reshape(len(answers), -1).sum(dim=1, dtype=torch.float64)
                ).numpy()
        return [int(client) for client in answers.clients[~finite]]

    def _wrong(self, model: Tree, update: Update) -> str | None:
        """Why an update cannot be used, or None."""
        names = self.setting.network.sent
        if set(update.delta) != set(names):
            return "the update does not have the model's tensors"
        for name in names:
            if update.delta[name].shape != model[name].shape:
                shapes = tuple(update.delta[name].shape), tuple(model[name].shape)
                return f"the update of {name} has shape {shapes[0]}, expected {shapes[1]}"
        for group, tree in {"update": update.delta, **update.payload}.items():
            for name, tensor in tree.items():
                if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                    return f"the {group} has NaN or infinite values in {name}"
        return None

    def _merge(
        self, state: State, view: ServerView, replies: Replies, heard: Replies
    ) -> tuple[Groups, Tree]:
        """Each part's state and the model, after the replies; `heard` are those and the server's
        own, where it takes part.
        """
        parts = dict(state.parts)
        if replies:
            parts["select"] = self.method.select.merge(parts["select"], view, replies)
            parts["local"] = self.method.local.merge(parts["local"], view, replies)
        parts["server"], model = self.method.server.merge(parts["server"], view, heard)
        return parts, model

    def _check(self, view: ServerView, model: Tree) -> None:
        broken = [
            name
            for name in self.setting.network.sent
            if not bool(torch.isfinite(model[name]).all())
        ]
        if broken:
            raise RunError(
                f"round {view.round}: the model has NaN or infinite values in {broken[0]}; lower "
                "train.lr or server.rate"
            )

    def _judge(self, after: State) -> tuple[State, float | None]:
        """The loss on what the server holds out, and the best round so far."""
        if self.held_out is None:
            return after, None
        loss = evaluate(self.setting.network, after.model, self.held_out).loss
        best = after.parts.get(BEST)
        if loss is not None and (best is None or loss < float(best["loss"])):
            best = {
                "loss": torch.tensor(loss, dtype=torch.float64),
                "round": torch.tensor(after.round - 1),
            }
            if self.method.server.keep == "best":
                best |= {f"model.{name}": tensor for name, tensor in after.model.items()}
            after = replace(after, parts={**after.parts, BEST: best})
        return after, loss

    def _evaluate(self, after: State, view: ServerView, replies: Replies) -> Scores | None:
        is_best = int(after.parts[BEST]["round"]) == view.round if BEST in after.parts else False
        wanted = is_best and self.method.server.keep == "best"
        if not (wanted or self.over(after) or after.round % self.evaluate_every == 0):
            return None
        models = self.method.server.judged(view, after.model, replies)
        return mean_scores([evaluate(self.setting.network, model, self.test) for model in models])


def _broadcasts(view: ServerView, told: Mapping[str, Mapping[int, Tree]]) -> dict[int, Broadcast]:
    """Each client's message; clients that are told the same share one."""
    if all(
        not per or (len(per) == len(view.clients) and len(set(map(id, per.values()))) == 1)
        for per in told.values()
    ):
        common = {name: next(iter(per.values())) for name, per in told.items() if per}
        return dict.fromkeys(view.clients, Broadcast(view.round, view.model, common))
    alike: dict[tuple[int, ...], Broadcast] = {}
    found = {}
    for client in view.clients:
        mine = {name: per[client] for name, per in told.items() if client in per}
        same = tuple(map(id, mine.values()))
        if same not in alike:
            alike[same] = Broadcast(view.round, view.model, mine)
        found[client] = alike[same]
    return found
