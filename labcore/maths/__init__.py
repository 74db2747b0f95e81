"""The equations as pure functions on tensors: no state, no clock, no model, float64-clean."""
