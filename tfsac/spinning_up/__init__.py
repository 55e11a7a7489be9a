"""Spinning Up's interface on tfsac's training loop: `tfsac.sac`, `tfsac.test_policy`, `tfsac spinup`."""
