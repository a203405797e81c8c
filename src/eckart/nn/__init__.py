"""Networks in PyTorch: loaded only when used."""
