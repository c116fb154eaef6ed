"""The graph of a flow as a drawing, without any I/O.

nodes ──► layers.py (columns, critical path) ──► folding.py (boxes) ──► placing.py (where they are) ──► drawing.py
"""
