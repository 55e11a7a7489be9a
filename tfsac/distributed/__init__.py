"""Runs on several machines: workers that TF_CONFIG lists, environments and jobs on a Ray cluster. Importing it
loads no TensorFlow.
"""
