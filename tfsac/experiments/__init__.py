"""Many runs: sweeps over parameters, comparisons of runs, learning curves. No TensorFlow."""
