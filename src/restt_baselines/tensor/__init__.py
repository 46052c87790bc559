"""Models of products of columns: plain trains, special cases of ResTT, the full tensor, factorization machines."""
