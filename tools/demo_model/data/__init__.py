"""Generates the demo model's training data: invented functions, values, schemas and problems."""
