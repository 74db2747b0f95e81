"""The pictures of the page Foundations: each computes in the browser, so that it follows the pointer."""

from app.components.foundations.picture import Picture

ENTROPY = Picture("entropy")
NEXT_TOKEN = Picture("next_token")
KL = Picture("kl")
KL_SAMPLES = Picture("kl_samples")
MONTE_CARLO = Picture("monte_carlo")
VARIANCE = Picture("variance")
IMPORTANCE = Picture("importance")
DECISION = Picture("decision")
ACTION_SPACE = Picture("action_space")
