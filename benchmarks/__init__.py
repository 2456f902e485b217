"""Speed and memory of the package, each figure beside what it is compared with, measured in the same run."""
