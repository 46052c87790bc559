"""Another name of :mod:`restt_app.workflow`, loaded on first use."""

import sys

import restt_app.workflow

sys.modules[__name__] = restt_app.workflow
