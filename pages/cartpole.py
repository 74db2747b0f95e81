"""CartPole and every other Gymnasium world with a few actions: knobs on the left, the policy and its curves right."""

from app import cartpole
from app.frame import frame

frame("cartpole", lambda draft: cartpole.scene(draft.fields["task"]), cartpole.picture)
