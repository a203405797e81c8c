"""Gradient methods: update rules as init + step, and the one loop that runs them."""
