"""One small module per backbone family: what differs between models, and nothing else."""
