"""Small helpers that every room may use: files, the machine, imports of the user's modules. No TensorFlow."""
