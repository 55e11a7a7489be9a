"""Settings of Keras and TensorFlow that networks depend on."""

from __future__ import annotations

import os
import pathlib

import keras
import tensorflow as tf


def check_settings() -> None:
    """Refuses to build networks where a setting of this process would change what they compute.

    Raises:
        ValueError: Keras computes with something else than TensorFlow, its types are not float32, or its images begin
            with their channels, or nothing runs eagerly here.
    """
    if (backend := keras.config.backend()) != "tensorflow":
        raise ValueError(
            "tfsac's networks are TensorFlow's: import tfsac before keras, or set KERAS_BACKEND=tensorflow. "
            f"Received: Keras with {backend}"
        )
    file = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "keras.json"
    types = {keras.config.floatx(), keras.config.dtype_policy().name}
    if types != {"float32"}:
        raise ValueError(
            "tfsac's networks are float32: call keras.config.set_floatx('float32') "
            "and keras.config.set_dtype_policy('float32') first; RunParameters(mixed_precision='bfloat16') "
            f"is faster where it can be. {file} may have set another type. "
            f"Received: {', '.join(sorted(types - {'float32'}))}"
        )
    if (images := keras.config.image_data_format()) != "channels_last":
        raise ValueError(
            f"Images are [height, width, channels]: call keras.config.set_image_data_format('channels_last'). "
            f"{file} may have set another. Received: {images}"
        )
    if not tf.executing_eagerly():
        raise ValueError(
            "tfsac is called outside tf.function, tf.Graph and TensorFlow's 1.x mode. Received: graph mode"
        )
