"""Tells whether an inference flag hurt the model: alone, with the others, and under load."""

__version__ = "0.1.0"
