"""Kernels that only the papers' structures need."""
