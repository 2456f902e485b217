"""``pipeline=true``: the agents of one chain in several processes, each hand-off a message between two of them."""
