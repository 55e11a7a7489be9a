"""Model cards: an exported policy, its returns and a page about it, as a folder for others; docs/model_cards.md.

`tfsac.write_card` and `tfsac.load_card` are imported from their modules, for the checks of a folder need no TensorFlow.
"""
