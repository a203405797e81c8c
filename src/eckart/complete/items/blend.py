"""Blend: several recommenders as one, by shares that hidden entries chose.

With the scores s_m(x) of all columns by member m for a row x,

    score(x) = sum_m c_m s_m(x) / rms(s_m(x)),      c >= 0, sum c = 1,     rms over the columns, for
    each row

so that no member drowns the others, whatever its scale and however long the row. Some entries are
hidden, all members are fitted to the rest, and the shares c are chosen by the lists of the hidden
entries; what they gain is measured on rows that had no say in them (see ``blend_weights``). Then
the members that have a share are fitted to all entries. A new row needs no fit but that of its
members.

Scores of a blend: a sum of the scores of its members, each divided by its root mean square over
the columns of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from eckart.certify.certificate import Certificate, Check
from eckart.complete.factors.als import ALS
from eckart.complete.items.blend_weights import Chosen, Pool, choose
from eckart.complete.items.ease import EASE
from eckart.complete.items.item_model import ItemModel, RowScorer, refuse_columns, rows_alike
from eckart.complete.items.row_scores import ScoresOfRows, tiles
from eckart.complete.items.spectral_filter import SpectralFilter
from eckart.complete.kept_entries import KeptEntries
from eckart.complete.recommend import Explanation, Recommendations, one_or_many, one_side
from eckart.complete.split import train_and_hidden
from eckart.errors import FileError, InputError, invalid
from eckart.factors import ItemWeights
from eckart.fit import Fit, fitted
from eckart.io.models.save import pack, unpack
from eckart.io.tables.triples import observed
from eckart.matrix import Observed, squarable
from eckart.matrix_blocks import some_rows
from eckart.parameters import check, number, param, whole
from eckart.rng import generator
from eckart.trace import StopReason, Trace

SCORES = 2**29
"""Bytes of the scores of one member by which shares are chosen: 3,000 rows of 41,000 columns, far
more rows of fewer."""
RANK = 64
"""Rank of ALS where no members are named: lists want more dimensions than predictions do."""
PROBLEM = (
    "recommend by a mixture of models whose shares hidden entries chose; each model is judged "
    "by its own checks"
)
KEPT = "the hidden entries were seen by the fit alone: what they said is that of the fit"


@dataclass(eq=False, repr=False)
class Blend(RowScorer):
    """Recommend by several models at once, each with the share that hidden entries gave it.

    Parameters
    ----------
    models : estimators for implicit feedback by name, which are not changed; None takes EASE, the
        spectral filter and ALS with their defaults.
    held_out : share or number of entries that are hidden while the shares are chosen;
        ``fit(X, validation=...)`` takes given ones instead.
    at : length of the lists that choose.
    feedback : "implicit", the only one: absent means not taken up.
    random_state, engine, n_threads, verbose : as in ``ALS``; members without a seed get this one.

    Attributes
    ----------
    members_ : the fitted models that have a share, by name.
    shares_ : their shares, by name; one model of share 1 where no mixture was better on rows that
        had no say in it.
    fit_ : factors (``ItemWeights`` with the shares), certificate, trace, plan.
    certificate_ : its evidence.

    The fit takes about twice the time of its members: once on the part that was not hidden, once on
    all entries.

    The certificate is statistical: it holds where every member's own certificate holds and where,
    on rows that had no say in the shares, the mixture is not behind the best member. What was
    measured there is reported.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> tastes = np.where(np.arange(200)[:, None] % 2 == np.arange(30) % 2, 0.5, 0.05)
    >>> x = np.where(rng.random(tastes.shape) < tastes, 1.0, np.nan)
    >>> model = Blend({"ease": EASE(l2=10.0), "gf-cf": SpectralFilter(2)}, random_state=0).fit(x)
    >>> round(sum(model.shares_.values()), 6), model.recommend(0, n=3).columns.shape, model.certificate_.holds
    (1.0, (1, 3), True)
    """

    models: Any = param(None)
    _: KW_ONLY
    held_out: Any = param(0.1, number(0, above=True))
    at: int = param(20, whole(1))
    feedback: Literal["implicit"] = param("implicit")

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        sql: str | None = None,
        weights: Any = None,
        rows: Any = None,
        columns: Any = None,
        values: Any = None,
        duplicates: str = "error",
        memory: Any = None,
    ) -> Self:
        """Fit to the entries of X, as ``EASE``. ``validation``: entries to choose the shares by, of
        the shape and ids of X and not in it; the members are fitted to X alone first and to both in
        the end."""
        check(self)
        if weights is not None:
            raise InputError(
                "weights are not taken: the strengths are in X itself, with strengths='raw' in the "
                "members that have them"
            )
        came = observed(
            X, sql, rows=rows, columns=columns, values=values, duplicates=duplicates, memory=memory
        )
        x = squarable(self._entries(came))  # type: ignore[arg-type]
        if min(x.shape) < 2:
            raise InputError(
                f"X must have two or more rows and columns, got n_samples = {x.shape[0]} and "
                f"n_features = {x.n_columns}: shares are chosen by hidden entries"
            )
        self._name_table(rows, columns, values)
        train, hidden = train_and_hidden(
            x, validation, self.held_out, self.random_state, "validation"
        )
        chosen, names = self._chosen(train, hidden), list(self._fresh(x.shape))
        every = x if validation is None else _union(x, hidden)
        kept = [name for name, share in zip(names, chosen.shares) if share > 0]
        fresh = self._fresh(x.shape)
        members = {name: _whole(fresh[name].fit(every)) for name in kept}
        shares = np.array([share for share in chosen.shares if share > 0])
        self._become(
            members,
            shares,
            every,
            self._hidden_facts(names, chosen, hidden),
            {"members": kept, "hidden entries": hidden.nnz},
        )
        return self

    def _become(
        self,
        members: dict[str, Any],
        shares: np.ndarray,
        x: Observed,
        hidden_facts: dict[str, Any],
        plan: dict[str, Any],
    ) -> None:
        factors = ItemWeights(
            x.shape[0], x.n_columns, shares=shares, rows=x.rows, columns=x.columns
        )
        certificates = {name: member.certificate_ for name, member in members.items()}
        certificate = _certificate(certificates, hidden_facts)
        self.members_ = members
        self._take(
            Fit(
                factors,
                certificate,
                Trace("none"),
                plan | {"engine": self._engine().name, "told": hidden_facts},
            ),
            x,
        )

    def _fresh(self, shape: tuple[int, int]) -> dict[str, Any]:
        """Members that are not fitted, by name, with the seed and the threads of the blend where
        they have none."""
        models = self.models
        if models is None:
            models = {
                "ease": EASE(),
                "gf-cf": SpectralFilter(),
                "als": ALS(max(1, min(RANK, *shape)), feedback="implicit"),
            }
        if not isinstance(models, Mapping) or not models:
            raise invalid(
                "models",
                models,
                "estimators by name, such as {'ease': EASE(), 'gf-cf': SpectralFilter()}",
            )
        found = {}
        for name, model in models.items():
            if not isinstance(model, (ItemModel, ALS)) or model.feedback != "implicit":
                kinds = "EASE, SLIM, SpectralFilter or ALS(feedback='implicit')"
                raise invalid("models", models, f"{kinds} by name, and {name!r} is none of these")
            found[str(name)] = member = clone(model)
            if member.random_state is None:
                member.set_params(random_state=self.random_state)
            if member.n_threads is None:
                member.set_params(n_threads=self.n_threads)
            if member.engine == "auto":
                member.set_params(engine=self.engine)
        return found

    def _chosen(self, train: Observed, hidden: Observed) -> Chosen:
        """Shares by the lists of hidden entries. One member is held at a time: of each only the
        scores of some rows are kept."""
        relevant = hidden.to_scipy()
        asked = np.flatnonzero(np.diff(relevant.indptr))
        if not len(asked):
            raise InputError("validation must hold at least one row with a hidden entry, got none")
        rng = generator(0 if self.random_state is None else self.random_state)
        room = max(2, SCORES // (4 * train.n_columns))
        if len(asked) > room:
            asked = np.sort(rng.choice(asked, room, replace=False))
        seen = train.to_scipy()[asked]
        i = np.repeat(np.arange(len(asked)), np.diff(seen.indptr))
        scores = []
        for member in self._fresh(train.shape).values():
            found = comparable(_whole(member.fit(train))._lowrank(), asked).astype(np.float32)
            found[i, seen.indices] = -np.inf
            scores.append(found)
        return choose(Pool.of(scores, relevant[asked], int(self.at)), rng)

    def _hidden_facts(self, names: list[str], chosen: Chosen, hidden: Observed) -> dict[str, Any]:
        """What hidden entries said."""
        at = f"ndcg@{self.at}"
        hidden_facts: dict[str, Any] = {
            f"share of {name}": float(share) for name, share in zip(names, chosen.shares)
        }
        hidden_facts |= {
            f"{at} of {name}": float(value) for name, value in zip(names, chosen.members)
        }
        hidden_facts |= {
            f"{at} of mixtures on rows that did not choose": chosen.blended,
            "gain over the best member": chosen.gain,
        }
        return hidden_facts | {
            "standard error of the gain": chosen.error,
            "hidden entries": hidden.nnz,
        }

    @fitted
    def shares_(self) -> dict[str, float]:
        """The share of each member."""
        shares = self._fitted("shares_").factors.shares
        return dict(zip(self.members_, shares.tolist()))

    def _lowrank(self) -> Any:
        check_is_fitted(self)
        return self._blended(
            [member._lowrank() for member in self.members_.values()], self.observed_
        )

    def _rows_by_parts(self, x: Any) -> list[Any]:
        return list(zip(*(member._rows_by_parts(x) for member in self.members_.values())))

    def _lean(self) -> Any:
        lean = super()._lean()
        lean.members_ = {name: member._lean() for name, member in self.members_.items()}
        return lean

    def _of_part(self, part: Observed, own: Any) -> BlendedScores:
        return self._blended(
            [member._of_part(part, rows) for member, rows in zip(self.members_.values(), own)], part
        )

    def _blended(self, scores: list[Any], x: Observed) -> BlendedScores:
        return BlendedScores(x, self.fit_.factors, scores, self._engine())

    def _folded(self, X: Any) -> tuple[Any, Observed]:
        check_is_fitted(self)
        x = self._aligned(X)
        return self._blended([member._folded(x)[0] for member in self.members_.values()], x), x

    def update(self, X: Any, *, axis: str = "rows") -> Self:
        """Take in the full history of some rows: known ids are replaced, new ids are added; what
        members know of columns, and the shares, stay as they are."""
        refuse_columns(axis)
        check_is_fitted(self)
        x = self._aligned(observed(X))
        for member in self.members_.values():
            member.update(x)
        entries = next(iter(self.members_.values())).observed_
        self._take(
            replace(
                self.fit_,
                factors=replace(self.fit_.factors, n_rows=entries.shape[0], rows=entries.rows),
            ),
            entries,
        )
        return self

    def _by_prediction(
        self, f: Any, at: np.ndarray, columns: np.ndarray, n: int, seen: Observed, hidden: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        return f.best(at, n, columns, None if hidden is None else seen)

    def similar(self, *, rows: Any = None, columns: Any = None, n: int = 10) -> Recommendations:
        """For columns: those with the largest score for a row that has this column alone. For rows:
        those with the most similar entries (cosines)."""
        one_side(rows, columns)
        check_is_fitted(self)
        if rows is not None:
            return rows_alike(self.observed_, self.row_ids, rows, n, self._engine())
        ids = self.column_ids
        at = ids.indices_of(one_or_many(columns))
        data = np.ones(len(at), self.observed_.dtype)
        single = Observed(np.arange(len(at) + 1), at, data, ids.size, None, self.observed_.columns)
        best, values = self._folded(single)[0].best(
            np.arange(len(at)), int(n), np.arange(ids.size), single
        )
        return Recommendations.of(ids, columns, best, values, by="prediction")

    def explain(self, row: Any, column: Any, n: int = 10) -> Explanation:
        """The score of (row, column) as a sum over the entries of the row; ``parts`` says what each
        member adds."""
        scores, i = self._lowrank(), self.row_ids.index_of(row)
        seen = int(self.observed_.row_counts()[i])
        shares: dict[Any, list[float]] = {}
        parts, base = {}, 0.0
        for (name, member), weight in zip(self.members_.items(), scores.weights(i)):
            why = member.explain(row, column, n=max(1, seen))
            parts[name], base = weight * why.prediction, base + weight * why.base
            for other, value, share in why.shares:
                shares.setdefault(other, [value, 0.0])[1] += weight * share
        first = sorted(shares, key=lambda name: -abs(shares[name][1]))[:n]
        listed = [(name, shares[name][0], shares[name][1]) for name in first]
        return Explanation(row, column, float(sum(parts.values())), float(base), listed, parts)

    def certify(self, X: Any) -> Certificate:
        """Measure the members' certificates again, from this model and data; what hidden entries
        said is that of the fit."""
        fit = self._fitted("certify")
        found = _certificate(
            {name: member.certify(X) for name, member in self.members_.items()}, fit.plan["told"]
        )
        return replace(found, notes=(*found.notes, KEPT))

    def extra_state(self) -> dict[str, np.ndarray]:
        """The observed entries once, and the members, for the model file."""
        state, headers = KeptEntries.extra_state(self), {}
        for at, (name, member) in enumerate(self.members_.items()):
            arrays, headers[name] = pack(member)
            own = {part: a for part, a in arrays.items() if not part.startswith("observed.")}
            state |= {f"member.{at}.{part}": a for part, a in own.items()}
        self.fit_.plan["models"] = headers
        return state

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        f, headers = fit.factors, fit.plan.pop("models", None)
        if (
            not isinstance(f, ItemWeights)
            or f.shares is None
            or not isinstance(headers, dict)
            or len(headers) != len(f.shares)
        ):
            raise FileError("shares and models must be those of a Blend, one model for each share")
        seen = {
            name: arrays[name] for name in ("observed.indptr", "observed.indices", "observed.data")
        }
        members = {}
        for at, (name, header) in enumerate(headers.items()):
            prefix = f"member.{at}."
            own = {part[len(prefix) :]: a for part, a in arrays.items() if part.startswith(prefix)}
            members[name] = member = unpack(own | seen, header)
            if not isinstance(member, (ItemModel, ALS)) or member.fit_.factors.shape != f.shape:
                raise FileError(
                    f"model {name!r} of a Blend is a {type(member).__name__} that does "
                    f"not fit the shape {f.shape}"
                )
        if not isinstance(fit.plan.get("told"), dict):
            raise FileError(
                f"the figures on hidden entries must be named numbers, got {fit.plan.get('told')!r}"
            )
        self.members_ = members
        self.models = {name: clone(member) for name, member in members.items()}
        self._take(fit, next(iter(members.values())).observed_)


def _certificate(members: dict[str, Certificate], hidden_facts: dict[str, Any]) -> Certificate:
    """Every check of the members, and that the mixture is not behind the best of them on rows that
    did not choose."""
    checks = [
        replace(one, name=f"{name}: {one.name}")
        for name, own in members.items()
        for one in own.checks
    ]
    gain, error = (
        float(hidden_facts["gain over the best member"]),
        float(hidden_facts["standard error of the gain"]),
    )
    behind = 0.0 if len(members) == 1 else -gain / error if error > 0 else -np.sign(gain)
    checks.append(
        Check(
            "behind the best member",
            behind,
            0.0,
            "standard errors, by lists of rows that had no say in the shares; below 0 it is ahead",
        )
    )
    notes = [f"{name}: {own.kind}" for name, own in members.items()]
    notes += [f"{name}: {note}" for name, own in members.items() for note in own.notes]
    return Certificate(PROBLEM, "statistical", tuple(checks), dict(hidden_facts), tuple(notes))


def _whole(model: Any) -> Any:
    """A model whose fit has come to its end: nothing is chosen by half a fit, an interrupt is
    raised again."""
    if model.fit_.trace.reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return model


def _union(x: Observed, more: Observed) -> Observed:
    """The entries of both; where both have one, that of ``x``."""
    a, b = x.to_scipy().tocoo(), more.to_scipy().tocoo()
    i, j = (np.concatenate([a.coords[side], b.coords[side]]) for side in (0, 1))
    _, first = np.unique(i.astype(np.int64) * x.n_columns + j, return_index=True)
    data = np.concatenate([a.data, b.data.astype(a.data.dtype, copy=False)])
    return Observed.from_codes(i[first], j[first], data[first], x.shape, x.rows, x.columns)


HELD = 8
"""Bytes of a score while it is made: some member has it in double precision."""


def comparable(scores: Any, rows: np.ndarray) -> np.ndarray:
    """The scores of whole rows, each row of mean square 1; a row that scores nothing stays zero."""
    parts = [_even(scores.block(part))[0] for part in tiles(rows, HELD * scores.shape[1])]
    return np.concatenate(parts) if parts else np.zeros((0, scores.shape[1]))


def _even(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A block of scores with rows of mean square 1, and what they were divided by."""
    size = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64) / block.shape[1])
    size[size == 0] = 1.0
    return block / size[:, None].astype(block.dtype), size


@dataclass(frozen=True, eq=False)
class BlendedScores(ScoresOfRows):
    """The names that ``Completer`` asks of a completed matrix, for ``scores`` of the members with
    the shares of ``factors``."""

    entries: Observed
    factors: ItemWeights
    scores: list[Any]
    engine: Any
    mean: float = 0.0
    row_bias: None = None
    column_bias: None = None
    held = HELD

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(*(s.dtype for s in self.scores))

    def weights(self, row: int) -> list[float]:
        """What the scores of each member are multiplied with in this row."""
        at = np.array([row])
        sizes = [float(_even(s.block(at))[1][0]) for s in self.scores]
        return [float(share) / size for share, size in zip(self._shares(), sizes)]

    def block(self, rows: Any) -> np.ndarray:
        """Scores of all columns for the rows at these positions."""
        at = self.positions(rows)
        out = np.zeros((len(at), self.n), self.dtype)
        for share, s in zip(self._shares(), self.scores):
            out += out.dtype.type(share) * _even(s.block(at))[0]
        return out

    def best(
        self, rows: np.ndarray, n: int, columns: np.ndarray, seen: Observed | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best of ``columns`` for each row, those that it has
        ``seen`` left out; -1 and -inf where there are fewer."""
        n = min(n, len(columns))
        left_out = np.setdiff1d(np.arange(self.n), columns) if len(columns) < self.n else None
        where, best = (
            np.full((len(rows), n), -1, np.int64),
            np.full((len(rows), n), -np.inf, self.dtype),
        )
        start = 0
        for tile in tiles(rows, self.held * self.n):
            block, to = self.block(tile), slice(start, start + len(tile))
            if left_out is not None:
                block[:, left_out] = -np.inf
            if seen is not None:
                near, own = some_rows(seen, tile)
                for q, row in enumerate(own):
                    block[q, near.indices[near.indptr[row] : near.indptr[row + 1]]] = -np.inf
            first = np.argpartition(-block, n - 1, axis=1)[:, :n]
            values = np.take_along_axis(block, first, axis=1)
            # of equal scores the first column, as in the other models
            order = np.lexsort((first, -values), axis=1)
            where[to], best[to] = (
                np.take_along_axis(first, order, axis=1),
                np.take_along_axis(values, order, axis=1),
            )
            start += len(tile)
        where[np.isneginf(best)] = -1
        return where, best

    def _shares(self) -> np.ndarray:
        assert self.factors.shares is not None
        return self.factors.shares
