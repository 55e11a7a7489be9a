"""Experiments, one file each: data only, runnable as `python presets/NAME.py` or `tfsac train --preset=NAME`."""
