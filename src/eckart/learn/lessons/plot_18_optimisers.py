r"""
18. Which optimiser wins, and why?
==================================

Curvature sets the pace. Let the gradient change by at most L a unit of length, and let
:math:`\lVert \nabla \ell \rVert^2 \ge 2 \mu (\ell - \ell^*)` hold. With the step 1/L gradient descent keeps the promise

.. math:: \ell_k - \ell^* \le \Big( 1 - \frac{\mu}{L} \Big)^{k} (\ell_0 - \ell^*) .

Momentum needs about the square root of as many steps. Methods with a step for each coordinate do better, where the valley
lies along the coordinates.
"""

import matplotlib.pyplot as plt
import numpy as np

from eckart.optim.rules import rule_named


def race(degrees, name, rate, most=5000):
    z = np.exp(1j * np.radians(degrees))
    Q = np.array([[z.real, -z.imag], [z.imag, z.real]])
    H, rule, p, losses = (
        Q @ np.diag([100.0, 1.0]) @ Q.T,
        rule_named(name),
        [Q @ np.ones(2)],
        [],
    )
    state = rule.init(p)
    while p[0] @ H @ p[0] > 101e-6 and len(losses) < most:
        losses.append(0.5 * p[0] @ H @ p[0])
        p, state = rule.step(p, [H @ rule.ahead(p, state)[0]], state, rate)
    return losses


rates = {"gd": 0.01, "nesterov": 0.01, "adagrad": 0.5, "adam": 0.1}
for name, rate in rates.items():
    print(
        f"{name:8s} straight valley {len(race(0, name, rate)):4d} steps, turned by 45 degrees {len(race(45, name, rate)):4d}"
    )

# %%
# A turn of the valley is nothing to gradient descent and Nesterov, and takes AdaGrad from first to last.

fig, ax = plt.subplots(figsize=(6, 3.4))
for name, rate in rates.items():
    ax.semilogy(race(45, name, rate), label=name)
steps = np.arange(500)
ax.semilogy(50.5 * (1 - 1 / 100) ** steps, "--", color="0.3", label="promise for gd")
ax.set(xlabel="steps", ylabel="loss", ylim=(1e-5, 1e2))
ax.legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# A step just above 2/L:

for rate in (0.019, 0.0201):
    print(f"step {rate}: loss after 200 steps {race(0, 'gd', rate, most=200)[-1]:.4f}")

# %%
# Try
# ---
# a) What is the largest step at which gradient descent does not diverge here? ``check("18a", step)``
#
# b) How long is Adam's first step at a rate of .1 without its correction of the bias? ``check("18b", length)``
#
# *Often believed:* smoothness makes descent find minima. It finds points without gradient; a saddle is one.
