"""Primitives that are array arithmetic, written once for NumPy and PyTorch.

A family's body (``mixtures``, ``parts``, ``ridge``) uses functions that both libraries have under
one name, through ``self.lib.xp``; what differs between them is a method of the library
(``numpy.NumpyLibrary``, ``torch.TorchLibrary``). It is an object and not a base class, so that no
helper can hide a primitive of its name.
"""
