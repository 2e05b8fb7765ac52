"""Does the gate see a loss of ten points, and does it pass a flag that harms nothing?

`python -m tools.sensitivity` asks both on a real vLLM, over several seeds, and writes a page of
what came out.
"""
