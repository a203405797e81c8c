"""Pictures: axes in, axes out. Every function draws on the matplotlib axes it is given (or makes
one) and returns it."""

from eckart.plots.complete import (
    error_by_popularity,
    factor_map,
    held_out_curve,
    objective,
    observed_predicted,
    shrinkage_path,
)
from eckart.plots.embed import plot_map, plot_neighbours
from eckart.plots.embed_fit import (
    plot_log_counts,
    plot_loss,
    plot_pmi_optimum,
    plot_singular_values,
)
from eckart.plots.mixture import responsibilities, soft_clusters
from eckart.plots.networks import (
    code_maps,
    code_walk,
    compare_rows,
    feature_maps,
    filters,
    loss_curves,
)
from eckart.plots.parts import parts_and_components, sum_of_parts
from eckart.plots.recover import flow, phase_square, saddle_escape, saddle_field, triptych
from eckart.plots.reduce import (
    code_map,
    components_as_images,
    loadings,
    outlier_chart,
    reconstructions,
    scree,
)
from eckart.plots.topics import perplexity_curve, topic_map, topic_words

__all__ = [
    "code_map",
    "code_maps",
    "code_walk",
    "compare_rows",
    "components_as_images",
    "error_by_popularity",
    "factor_map",
    "feature_maps",
    "filters",
    "flow",
    "held_out_curve",
    "loadings",
    "loss_curves",
    "objective",
    "observed_predicted",
    "outlier_chart",
    "parts_and_components",
    "perplexity_curve",
    "phase_square",
    "plot_log_counts",
    "plot_loss",
    "plot_map",
    "plot_neighbours",
    "plot_pmi_optimum",
    "plot_singular_values",
    "reconstructions",
    "responsibilities",
    "saddle_escape",
    "saddle_field",
    "scree",
    "shrinkage_path",
    "soft_clusters",
    "sum_of_parts",
    "topic_map",
    "topic_words",
    "triptych",
]
