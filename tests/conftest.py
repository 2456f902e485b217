"""What every test shares: no network, and as few threads as a small machine has cores."""

from __future__ import annotations

import os

# read by the libraries at their import, so they are set before any test module is
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
