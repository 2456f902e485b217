"""The scripts that run on the inside of the sandbox's wall; they import the standard library and each other only."""
