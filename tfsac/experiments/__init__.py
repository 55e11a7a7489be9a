"""Many runs: parameter sweeps, comparisons of runs, learning curves. Does not import TensorFlow."""
