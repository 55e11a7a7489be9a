"""Runs on several machines: workers listed in TF_CONFIG, and environments and jobs on a Ray cluster. Importing it loads
no TensorFlow.
"""
