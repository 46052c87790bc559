"""The mean-field analysis and the paper's claims about stability, measured."""
