"""Runs many settings over one loaded model: a grid of arms, seeds and tasks, each result in lm-eval's own files."""
