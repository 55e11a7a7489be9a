"""Losses: pure functions of tensors that return one value for each entry of a batch.

Wrong ranks or sizes are a ValueError, at trace time.
"""
