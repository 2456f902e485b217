"""Reads lm-eval's results and samples files and says what differs, how surely, and at what cost.

Knows files and nothing else: no torch, no transformers, no lm_eval, and no model is ever run from here.
"""
