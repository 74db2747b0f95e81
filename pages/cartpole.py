"""CartPole and every other Gymnasium world: knobs on the left, the policy and its curves on the
right."""

from app.cartpole.arguments import form
from app.cartpole.own_tabs import TABS
from app.cartpole.picture import picture, scene
from app.training.frame import frame

frame("cartpole", lambda draft: scene(draft.fields["task"], str(draft.values["env_args"])), picture, TABS, form=form)
