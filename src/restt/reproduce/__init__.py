"""One file per table and figure of the paper."""
