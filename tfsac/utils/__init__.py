"""Helpers for the whole package: files, the machine, imports of the user's modules. They load no TensorFlow."""
