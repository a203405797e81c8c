"""Rows of scores with gaps, in NumPy: the conditional normal distribution of each row is written
out."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol.series import FactorRule, FilledMoments


class OracleTables:
    """The primitives of ``protocol.tables``."""

    def filled_moments(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        *,
        width: Any = None,
        codes: Any = None,
        weights: Any = None,
    ) -> tuple[FilledMoments, np.ndarray]:
        m, (n, k) = place(x).matrix, factors.shape
        rows = len(m.indptr) - 1
        start, times = (
            np.zeros((rows, k)) if codes is None else np.asarray(codes),
            np.ones(rows) if weights is None else weights,
        )
        whole = factors @ factors.T + np.diag(noise)
        first, second, loglik, wild, out = (
            np.zeros(n),
            np.zeros((n, n)),
            0.0,
            np.zeros(n),
            np.zeros((rows, k)),
        )
        for i, (a, b) in enumerate(zip(m.indptr[:-1], m.indptr[1:])):
            seen, y = m.indices[a:b], np.asarray(m.data[a:b], np.float64)
            if width is not None:
                t = mean[seen] + factors[seen] @ start[i]
                beyond = np.abs(y - t) > width[seen]
                wild[seen[beyond]] += (
                    times[i] * width[seen][beyond] * (np.abs(y - t) - width[seen])[beyond]
                )
                y = t + np.clip(y - t, -width[seen], width[seen])
            away, cov = y - mean[seen], whole[np.ix_(seen, seen)]
            pull = np.linalg.solve(cov, np.column_stack([whole[seen], factors[seen], away]))
            out[i] = factors[seen].T @ pull[:, -1]
            loglik -= (
                0.5
                * times[i]
                * (away @ pull[:, -1] + np.linalg.slogdet(cov)[1] + len(seen) * np.log(2 * np.pi))
            )
            full, spread = mean + whole[:, seen] @ pull[:, -1], whole - whole[:, seen] @ pull[:, :n]
            full[seen] = y
            spread[seen] = 0.0
            spread[:, seen] = 0.0
            first, second = (
                first + times[i] * full,
                second + times[i] * (np.outer(full, full) + spread),
            )
        return FilledMoments(first, second, float(loglik), wild), out

    def left_out_rows(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        parts: np.ndarray,
        *,
        width: Any = None,
        codes: Any = None,
    ) -> np.ndarray:
        m, whole = place(x).matrix, factors @ factors.T + np.diag(noise)
        out = np.empty((len(m.indptr) - 1, len(mean)))
        for i, (a, b) in enumerate(zip(m.indptr[:-1], m.indptr[1:])):
            seen, y = m.indices[a:b], np.asarray(m.data[a:b], np.float64)
            if width is not None:
                t = mean[seen] + factors[seen] @ (
                    0 * factors[0] if codes is None else np.asarray(codes)[i]
                )
                y = t + np.clip(y - t, -width[seen], width[seen])
            for first, last in [(0, 0), *parts]:
                left = (seen < first) | (seen >= last)
                rest = seen[left]
                there = mean + whole[:, rest] @ np.linalg.solve(
                    whole[np.ix_(rest, rest)], (y - mean[seen])[left]
                )
                # nothing is left out: all scores, of which the seen ones are themselves
                if first == last:
                    out[i], out[i, seen] = there, y
                elif not left.all():
                    out[i, first:last] = there[first:last]
        return out

    def factor_steps(
        self, cov: np.ndarray, factors: np.ndarray, noise: np.ndarray, rule: FactorRule
    ) -> tuple[np.ndarray, np.ndarray]:
        w, own, one = (
            np.asarray(factors, np.float64),
            np.asarray(noise, np.float64),
            np.eye(factors.shape[1]),
        )
        for _ in range(rule.steps):
            scaled = (w / own[:, None]).T
            spread = np.linalg.inv(one + scaled @ w)
            b = spread @ scaled
            cb = cov @ b.T
            zz = b @ cb + spread
            w = np.linalg.solve(zz + rule.l2 / rule.rows * one, cb.T).T
            left = rule.rows * (np.diagonal(cov) - (w * cb).sum(axis=1)) + rule.more
            before, own = own, np.maximum(left / (rule.rows + rule.degrees), rule.least)
            wider = w @ np.linalg.cholesky((zz + zz.T) / 2)
            cost = rule.l2 * float(((wider**2 - w**2).sum(axis=1) / own).sum())
            if rule.rows * (np.trace(zz) - len(zz) - np.linalg.slogdet(zz)[1]) >= cost:
                w = wider
            if np.abs(own / before - 1.0).max() <= rule.still:
                break
        return w, own
