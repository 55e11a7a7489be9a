"""Where `tfsac.policies.distributions` was before."""

from tfsac.policies.distributions import DiagonalGaussian, MaskedCategorical, SquashedGaussian

__all__ = ["DiagonalGaussian", "MaskedCategorical", "SquashedGaussian"]
