"""Volterra series of sequences: a train whose every site reads the same window of lags.

A series of order P over a window u of lags is a polynomial of degree P in u, and so a tensor over P copies of [1, u]:

    y(t) = h0 + Σ h1(τ) u(t-τ) + Σ h2(τ1, τ2) u(t-τ1) u(t-τ2) + …  =  Σ A(i1 … iP) ũ(i1) … ũ(iP),     ũ = [1, u]

A tensor train of A is the model; its kernels are A's slices. Two ways to fit it: by least squares over all distinct
products of lags (exact, whatever the rank), or core by core at a bond of one's choice, where products are too many.
"""

from restt.volterra.regressor import VolterraRegressor

__all__ = ["VolterraRegressor"]
