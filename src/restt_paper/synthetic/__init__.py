"""The synthetic figure: a polynomial of known orders."""
