"""Spinning Up's way of working on this package's training loop: `tfsac.sac`, `tfsac.test_policy`, `tfsac spinup`."""
