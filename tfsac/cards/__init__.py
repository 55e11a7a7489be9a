"""Model cards: an exported policy, its returns and a page about it, as a folder for others; docs/exports.md.

README.md       what a stranger reads; its head is the metadata of a Hugging Face model repository
config.json     the preset, how it was run, versions and spaces
results.json    returns of every episode
policy/         the SavedModel
curve.png       the learning curve
replay.mp4      the first episode, where the environment draws
"""
