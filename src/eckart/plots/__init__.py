"""Pictures: axes in, axes out. Every function draws on the matplotlib axes it is given (or makes one) and returns it."""

from eckart.plots.reduce import code_map, components_as_images, loadings, outlier_chart, reconstructions, scree

__all__ = ["code_map", "components_as_images", "loadings", "outlier_chart", "reconstructions", "scree"]
