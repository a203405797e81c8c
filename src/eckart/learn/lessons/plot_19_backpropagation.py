r"""
19. How does blame travel backwards?
====================================

A network is a chain of maps. One pass forward keeps the values, one pass backward carries the derivative of the loss from
each layer to the one before,

.. math::

   \delta_k = J_{k+1}^T\, \delta_{k+1}, \qquad
   \frac{\partial \ell}{\partial W_{ij}} = [\delta]_i\; \varphi'\big((W z)_i\big)\; z_j ,

and every partial product is used for all weights before it. That is all of backpropagation: the chain rule, in the order
that repeats nothing.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from eckart.learn import generator

r = generator()
x, W, b = r.standard_normal(5), r.standard_normal((4, 5)), r.standard_normal(4)
s = 1 / (1 + np.exp(-W @ x))  # forward
delta = (b @ s - 1.0) * b  # backward, through the last layer
hand = np.outer(delta * s * (1 - s), x)
w = torch.tensor(W, requires_grad=True)
(0.5 * (torch.tensor(b) @ torch.sigmoid(w @ torch.tensor(x)) - 1.0) ** 2).backward()
auto = w.grad.numpy()
print(
    f"by hand {hand[2, 3]:.8f}, autograd {auto[2, 3]:.8f}; "
    f"without phi' off by {abs(np.outer(delta, x) - auto).max():.3f}"
)

# %%
# What breaks
# -----------
# The slope of a sigmoid is at most a quarter. Under ten of them the blame that arrives at the first layer is a millionth:

sizes = {}
for name, phi in (
    ("sigmoid", torch.sigmoid),
    ("tanh", torch.tanh),
    ("relu", torch.relu),
):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 32) for _ in range(10)]
    value = torch.randn(64, 32)
    for layer in layers:
        value = phi(layer(value))
    value.square().mean().backward()
    sizes[name] = [layer.weight.grad.norm().item() for layer in layers]
fig, ax = plt.subplots(figsize=(6, 3.2))
for name, found in sizes.items():
    ax.semilogy(np.arange(1, 11), found, "o-", label=name)
ax.set(xlabel="layer", ylabel="size of its gradient")
ax.legend()
fig.tight_layout()

# %%
# Try
# ---
# a) What is the largest possible product of ten slopes of a sigmoid? ``check("19a", product)``
#
# b) Write ``hand`` for tanh. By how much does it differ from autograd? ``check("19b", difference)``
#
# *Often believed:* backpropagation is how a network learns. It is how the gradient is found; learning is what is done with
# it (:doc:`plot_18_optimisers`).
