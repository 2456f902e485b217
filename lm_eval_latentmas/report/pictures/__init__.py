"""Pictures of a comparison, drawn with matplotlib's objects alone: no global state, readable in greyscale."""
