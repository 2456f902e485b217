"""What every process of a test pipeline needs, imported once by the server that forks them."""

import chains  # noqa: F401
import tiny  # noqa: F401

import lm_eval_latentmas.pipeline.chain  # noqa: F401
