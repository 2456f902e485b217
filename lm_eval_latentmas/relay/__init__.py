"""The hand-off between two agents: selectors, compensations and codecs make a relay out of a segment."""
