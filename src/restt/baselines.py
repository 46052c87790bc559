"""Another name of :mod:`restt_baselines`, loaded on first use."""

import sys

import restt_baselines

sys.modules[__name__] = restt_baselines
