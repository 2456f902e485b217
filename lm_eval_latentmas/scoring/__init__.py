"""Grading: from a model's text to an answer, from an answer to a verdict, from verdicts to metrics. Needs no torch."""
