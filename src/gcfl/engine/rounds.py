"""One round, over any transport: cohort, announce, exchange, check, merge, evaluate.

Nothing here knows a method by name, and nothing here writes a file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from gcfl.base import rng
from gcfl.base.data_types import Groups, Shard, Tree
from gcfl.base.errors import RunError
from gcfl.base.record import Samples, Traffic
from gcfl.engine.measurement import (
    Ahead,
    Scores,
    Stopwatch,
    bytes_down,
    evaluate,
    mean_loss,
    mean_scores,
    total,
)
from gcfl.engine.played import Played, State
from gcfl.engine.transport import Transport, broadcasts_of
from gcfl.methods import CleanOptions, Method, Replies, ServerView, Setting
from gcfl.methods.answers import Form, Like
from gcfl.methods.bounds import Lookout, absurd, bounded
from gcfl.methods.clean_choice import settled
from gcfl.methods.contribution import MOST, Contributions, contributions, judged_on
from gcfl.methods.privacy import STATE as PRIVACY
from gcfl.methods.privacy import Privacy, withheld
from gcfl.methods.server_training import fine_tuned, joined, warm_started
from gcfl.methods.training import learning_rate

log = logging.getLogger("gcfl")
CLEAN = "clean"  # the state's entry for what cross-validation on the clean set found
BEST = "best"  # the state's entry for the round with the lowest loss on what is held out


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
    clean: CleanOptions = field(default_factory=CleanOptions)
    evaluate_every: int = 1
    held_out: Shard | None = None
    names: tuple[str, ...] | None = None
    lookout: Lookout = field(default_factory=Lookout)
    privacy: Privacy | None = None
    ahead: Ahead = field(default_factory=Ahead)

    def begin(self) -> State:
        """The state before the first round: the network's own weights, each part's first state."""
        model = self.setting.network.tree()
        parts = {name: part.server_init(model) for name, part in self.method.parts.items()}
        if self.privacy is not None:
            parts[PRIVACY] = self.privacy.begin()
        return State(0, model, parts)

    def called(self, client: int) -> str:
        """A client in a sentence: its number, and its name where it has one."""
        return f"client {client}" + (f" ({self.names[client]})" if self.names else "")

    def draw(
        self, round: int, among: Sequence[int] | None = None, seed: int | None = None
    ) -> tuple[int, ...]:
        """The round's clients, sorted: m of N, or of those `among`, from (seed, round) alone. seed:
        a secret one.
        """
        if not self.method.server.uses_clients:
            return ()
        among = range(self.clients) if among is None else among
        if self.cohort >= len(among):
            return tuple(among)
        stream = rng.stream(self.setting.seed if seed is None else seed, "cohort", round)
        chosen = stream.choice(len(among), self.cohort, replace=False, shuffle=False)
        return tuple(among[place] for place in sorted(chosen.tolist()))

    def play(self, state: State) -> Played:
        """One round from a state to the next. A round with no valid answer is an error.

        Nothing outside the returned value changes, so a round that was interrupted can be played
        again; the caller commits the accepted clients' memory.
        """
        ahead = Ahead() if state.round else self.ahead
        watch, method, privacy = Stopwatch(ahead.spent), self.method, self.privacy
        ledger = privacy.ledger(state.parts) if privacy else None
        key = privacy.key(state.parts) if privacy else None
        private = privacy is not None and privacy.clients is not None
        view = ServerView(
            self.setting,
            state.round,
            state.model,
            self.validation,
            (),
            population=self.clients + self.clean.takes_part,
            held_out=self.held_out,
            ledger=ledger,
        )
        among = method.local.candidates(state.parts["local"], view)
        cohort = self.draw(state.round, among, key if private else None)
        with watch.of("train"):
            clean, note = settled(view, self.clean, state.parts.get(CLEAN, {}))
            view = replace(view, clients=cohort, model=warm_started(view, clean))
            if view.model is not state.model:
                self._check(view, view.model)
        with watch.of("select"):
            announced: dict[str, Mapping[int, Tree]] = {}
            for name, part in method.parts.items():
                announced[name] = part.announce(state.parts[name], view)
                if name == "select" and method.select.asks:
                    view = replace(view, selecting=tuple(announced[name]))
        broadcasts = broadcasts_of(view, announced)
        started = time.perf_counter()
        received = self.transport.exchange(broadcasts) if broadcasts else Replies({})
        seconds = time.perf_counter() - started
        replies, answered, left_out = self._accept(view, received, seconds)
        with watch.of("train"):
            heard, parts = replies, state.parts
            if self.clean.takes_part and cohort:
                heard, parts = joined(view, method.local, replies, parts, clean)
        with watch.of("aggregate" if cohort else "train"):
            entering = self._entering(parts, view, replies, heard)
            if privacy is not None and key is not None:
                entering = privacy.merged(entering, len(cohort), state.round, key)
            parts, model = self._merge(parts, view, replies, heard, entering)
            parts |= {CLEAN: note} if note else {}
            helped = self._helped(view, replies, entering)
        with watch.of("train"):
            model = fine_tuned(view, self.clean, model, "each")
        with watch.of("evaluate"):
            after, validation_loss = self._judge(State(state.round + 1, model, parts))
        if self.over(after) and self.clean.fine_tune == "end":
            with watch.of("train"):
                after = _ended(after, fine_tuned(view, self.clean, self.final(after), "end"))
        if ledger is not None:
            after = replace(after, parts={**after.parts, PRIVACY: ledger.after})
        self._check(view, after.model)
        with watch.of("evaluate"):
            scores = self._evaluate(after, view, replies)
        # Left out or not, an answer cost.
        meter = view.meter
        sent = method.server.shares
        return Played(
            state=after,
            cohort=len(cohort),
            accepted=tuple(replies),
            left_out=left_out,
            observed=withheld(replies.observed) if private else replies.observed,
            lr=learning_rate(self.setting.train, state.round, self.setting.rounds),
            train_loss=None if private else mean_loss(replies),
            scores=scores,
            validation_loss=validation_loss,
            examples=int(replies.examples.sum()),
            selected=sum(client in announced["select"] for client in replies),
            samples=Samples(
                ahead.samples + meter.forward + total(answered, "forward"),
                meter.backward + total(answered, "backward"),
            ),
            steps=meter.steps + total(answered, "steps"),
            traffic=Traffic(bytes_down(broadcasts), answered.bytes()) if sent else Traffic({}, {}),
            time=watch.times(answered),
            chosen={name: float(tensor) for name, tensor in note.items()}
            if note and not state.round
            else None,
            guard=method.labels.told(parts["labels"], state.round) if method.labels else None,
            contribution=helped or None,
            contribution_on=judged_on(view)[0] if helped else None,
            privacy=privacy.told(after.parts, after.round) if privacy else None,
        )

    def over(self, state: State) -> bool:
        """Whether the last round is played, or patience or the clients' budget has run out."""
        if state.round >= self.setting.rounds or (self.privacy and self.privacy.over(state.round)):
            return True
        patience, best = self.clean.patience, state.parts.get(BEST)
        if patience is None or best is None:
            return False
        return state.round - 1 - int(best["round"]) >= patience

    def final(self, state: State) -> Tree:
        """The model that a finished run leaves."""
        best = state.parts.get(BEST, {})
        names = [name for name in best if name.startswith("model.")]
        return {name.removeprefix("model."): best[name] for name in names} or state.model

    def _accept(
        self, view: ServerView, received: Replies, seconds: float
    ) -> tuple[Replies, Replies, dict[int, str]]:
        """(the valid answers, all of which it is known what they cost, why others are left out)."""
        form = Form(
            {name: Like.of(view.model[name]) for name in self.setting.network.sent},
            {name: part.sends(view) for name, part in self.method.client_parts.items()},
            self.setting.train,
            self.transport.holds,
            seconds,
        )
        heard, unreadable = received.readable(form.told)
        replies, wrong = heard.checked(form.problem)
        if not (self.privacy and self.privacy.central):  # where no answer may bear on another
            replies, beyond = absurd(view, replies, self.method.server, form.payload)
            wrong |= beyond
        left_out = dict(sorted({**unreadable, **wrong}.items()))
        if left_out and not len(replies):
            raise RunError(self.lookout.nobody_left(view.round, left_out, self.called))
        self.lookout.tell(view.round, left_out, self.called)
        self.lookout.look(view, replies, self.called)
        return bounded(view, replies, self.method.server, form.payload), heard, left_out

    def _entering(
        self, parts: Groups, view: ServerView, replies: Replies, heard: Replies
    ) -> Replies:
        """Those of the `heard` whose updates enter the model."""
        if self.method.labels is None or not replies:
            return heard
        ignored = self.method.labels.ignored(parts["labels"], view, replies)
        return heard.among([one for one in heard if one not in ignored]) if ignored else heard

    def _merge(
        self,
        before: Groups,
        view: ServerView,
        replies: Replies,
        heard: Replies,
        entering: Replies,
    ) -> tuple[Groups, Tree]:
        """Each part's state and the model, after the replies; `heard` are those and the server's
        own, where it takes part: it neither selects nor doubts its labels.
        """
        parts = dict(before)
        for name, part in self.method.client_parts.items() if replies else ():
            joins = name == "local" and not self.method.local.doubts
            parts[name] = part.merge(parts[name], view, heard if joins else replies)
        parts["server"], model = self.method.server.merge(parts["server"], view, entering)
        return parts, model

    def _helped(self, view: ServerView, replies: Replies, entering: Replies) -> Contributions:
        """How much each client's update helped, if that is asked for."""
        if not self.clean.contribution:
            return {}
        if view.round == 0 and self.cohort > MOST:
            log.info(
                "clean.contribution: a round of %d clients leaves none of them out to compare: "
                "that is for %d at most",
                self.cohort,
                MOST,
            )
        leave_out = view.round % self.clean.contribution_every == 0
        return contributions(view, replies, entering, self.method.server.by_examples, leave_out)

    def _check(self, view: ServerView, model: Tree) -> None:
        for name in self.setting.network.sent:
            if not bool(torch.isfinite(model[name]).all()):
                problem = f"the model has NaN or infinite values in {name}"
                raise RunError(f"round {view.round}: {problem}; lower train.lr or server.rate")

    def _judge(self, after: State) -> tuple[State, float | None]:
        """The loss on what the server holds out, and the best round so far."""
        if self.held_out is None:
            return after, None
        loss = evaluate(self.setting.network, after.model, self.held_out).loss
        best = after.parts.get(BEST)
        if loss is not None and (best is None or loss < float(best["loss"])):
            best = {"loss": torch.tensor(loss, dtype=torch.float64)}
            best["round"] = torch.tensor(after.round - 1)
            if self.clean.keep == "best":
                best |= {f"model.{name}": tensor for name, tensor in after.model.items()}
            after = replace(after, parts={**after.parts, BEST: best})
        return after, loss

    def _evaluate(self, after: State, view: ServerView, replies: Replies) -> Scores | None:
        is_best = BEST in after.parts and int(after.parts[BEST]["round"]) == view.round
        wanted = is_best and self.clean.keep == "best"
        if not (wanted or self.over(after) or after.round % self.evaluate_every == 0):
            return None
        models = self.method.server.judged(view, after.model, replies)
        return mean_scores([evaluate(self.setting.network, model, self.test) for model in models])


def _ended(after: State, model: Tree) -> State:
    """With another final model than that of any round."""
    best = after.parts.get(BEST, {})
    best = {name: tensor for name, tensor in best.items() if not name.startswith("model.")}
    return replace(after, model=model, parts={**after.parts, BEST: best} if best else after.parts)
