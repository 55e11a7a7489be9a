"""Losses: pure functions of tensors that return one value per row."""
