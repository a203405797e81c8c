"""Questions to fitted models and their answers, said once for Python, shell, service and studio."""
