"""What ``ALS`` does with the maps from attributes once it is fitted: new rows, explanations,
evidence, files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.mapped import certify_mapped
from eckart.certify.stationary import RidgePoint, RidgeProblem
from eckart.complete.factors import mapped
from eckart.complete.featured import Featured
from eckart.complete.folding import cast, learned_columns
from eckart.complete.normalise import Normaliser
from eckart.complete.score import Lean
from eckart.errors import FileError
from eckart.factors import LowRank
from eckart.fit import Fit
from eckart.matrix import Observed


class MappedModel(Featured):
    """A factorization whose codes lean on attributes by ridge maps; without attributes ``maps_`` is
    None and nothing here differs."""

    maps_: mapped.Fitted | None = None

    def _folded(self, X: Any) -> tuple[LowRank, Observed]:
        if self.maps_ is None:
            return super()._folded(X)
        x = self._aligned(X)
        f, maps, rule = (
            self._lowrank(),
            self.maps_,
            self._fold_rule()._replace(bias=False, bias_l2=0.0),
        )
        norm = (
            Normaliser(None, f.shape) if self.normaliser_ is None else self.normaliser_
        ).for_rows(x)
        y = replace(x, data=norm.apply(self._as_fitted(x)).data)
        means, ridge = maps.means(self._numbers(x), x.shape[0]), rule.ridges(x.row_counts())[0]
        offset = learned_columns(f, norm)
        right = np.column_stack([f.right, np.full(f.n, maps.stretch)]) if maps.stretch else f.right
        engine = self._engine()
        with engine.at_work():
            found = mapped.folded_rows(
                engine,
                engine.put(y),
                self._loss(),
                engine.take(right, y.dtype),
                rule,
                base=self._fold_base(f),
                offset=None if offset is None else engine.take(offset, y.dtype),
                prior=engine.take(means * ridge[:, None], y.dtype),
                start=engine.take(means, y.dtype),
            )
            codes = np.array(engine.get(found), f.right.dtype)
        empty = x.row_counts() == 0  # nothing was said, not even a weak no
        codes[empty] = means[empty]
        left, bias = (
            (codes[:, :-1], codes[:, -1] * maps.stretch)
            if maps.stretch
            else (codes, norm.row_offset)
        )
        left = np.ascontiguousarray(left)
        return f.with_rows(left, cast(bias, left), cast(norm.row_scale, left), x.rows), x

    def _prior_of(self, i: int, j: int) -> Lean | None:
        if self.maps_ is None:
            return None
        rows, columns = (
            None if self.features_ is None else side for side in (self.features_ or (None, None))
        )
        s = self.maps_.stretch
        row = self.maps_.means(None if rows is None else rows.numbers[[i]], 1)[0]
        column = self.maps_.flipped().means(None if columns is None else columns.numbers[[j]], 1)[0]
        return Lean(np.append(row[:-1], row[-1] * s) if s else row, float(column[-1] * s))

    def _certify_mapped(self, problem: RidgeProblem, x: Observed, engine: Any) -> Certificate:
        """The certificate of the fit with attributes, from this model and data alone."""
        assert self.maps_ is not None
        assert self.features_ is not None
        f, maps = self._lowrank(), self.maps_
        numbers = [None if side is None else side.numbers for side in self.features_]
        rows, columns = (float(rho) for rho in self.fit_.plan["l2_features"])
        p = mapped.mapped(engine, problem, (numbers[0], numbers[1]), rows)
        p = p._replace(columns=p.columns._replace(rho=columns))
        codes = [f.left, f.right]
        if maps.stretch:
            codes = [
                np.column_stack([u, b / maps.stretch])
                for u, b in ((f.left, f.row_bias), (f.right, f.column_bias))
                if b is not None
            ]
        mean = 0.0 if self.normaliser_ is not None else f.mean
        if not problem.rule.alpha:  # a row without an entry has no penalty: its code is the map's
            counts = (problem.x.counts, problem.x.T.counts)
            codes = [
                np.where(np.asarray(n)[:, None] > 0, u, 0.0)
                for n, u in zip(counts, codes, strict=True)
            ]
        left, right = (engine.take(u, x.dtype) for u in codes)
        return certify_mapped(
            p,
            RidgePoint(left, right, None, None, mean, maps.rows, maps.columns, self._loss()),
            engine,
            self.fit_.trace,
        )

    def _turned(self) -> MappedModel:
        other = super()._turned()
        assert isinstance(other, MappedModel)
        other.maps_ = None if self.maps_ is None else self.maps_.flipped()
        return other

    def extra_state(self) -> dict[str, np.ndarray]:
        state = super().extra_state()
        if self.maps_ is not None:
            state |= {
                "features.row_map": self.maps_.rows,
                "features.column_map": self.maps_.columns,
            }
            self.fit_.plan["features"]["stretch"] = self.maps_.stretch
        return state

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        super()._store(fit, arrays)
        self.maps_ = None
        if self.features_ is None:
            return
        assert isinstance(fit.factors, LowRank)
        s = fit.plan["features"].get("stretch")
        biased = fit.factors.row_bias is not None and self.normaliser_ is None
        if (
            not isinstance(s, (int, float))
            or isinstance(s, bool)
            or not 0 <= s < np.inf
            or (s > 0) != biased
        ):
            raise FileError(
                f"stretch must be the scale of biases in the maps from attributes, got {s!r}"
            )
        d, maps = fit.factors.k + (1 if s else 0), []
        for name, side in (
            ("row_map", self.features_.rows),
            ("column_map", self.features_.columns),
        ):
            a, width = (
                arrays.get(f"features.{name}"),
                1 + (0 if side is None else side.encoding.width),
            )
            if a is None or a.shape != (width, d) or a.dtype.kind != "f":
                raise FileError(
                    f"a {name} came that does not fit {width} attributes and codes of {d} numbers"
                )
            maps.append(a)
        rho = fit.plan.get("l2_features")
        if (
            not isinstance(rho, list)
            or len(rho) != 2
            or not all(isinstance(r, (int, float)) and 0 < r < np.inf for r in rho)
        ):
            raise FileError(
                f"l2_features must be the ridges of the two maps from attributes, got {rho!r}"
            )
        self.maps_ = mapped.Fitted(maps[0], maps[1], float(s))
