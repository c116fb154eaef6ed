"""Chaos: real worker processes under fire, every call recorded, and a verdict in the end. See docs/chaos.md.

python -m proof.chaos --storage redis --minutes 5 --seed 7
python -m proof.chaos poison
"""
