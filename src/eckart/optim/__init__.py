"""Gradient methods: update rules as init + step, and the one loop that runs them."""

from eckart.optim.rules import AdaGrad, Adam, GradientDescent, HeavyBall, Nesterov, rule_named

__all__ = ["AdaGrad", "Adam", "GradientDescent", "HeavyBall", "Nesterov", "rule_named"]
