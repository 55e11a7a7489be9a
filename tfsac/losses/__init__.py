"""Losses: pure functions of tensors that return one value for each entry of a batch.

Wrong ranks or sizes raise a ValueError at trace time.
"""
