"""Kernels that only the laboratory needs."""
