"""A new session taken to where another one is: what both methods have goes on, the rest begins anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labcore.deep.session import Session

_SAME = ("step", "updates", "env_steps", "best", "best_return", "best_step", "episodes")
_RANDOM = ("rng", "generator")  # the parts of the worlds' state that are random numbers to come


def fork(parent: Session, child: Session) -> Session:
    """`child`, newly started, where `parent` is: weights, optimizers of the same type, replay, worlds and counters.

    Random numbers go on as well where the child is a twin; else those that it was started with are used. The episodes
    under way are played on in either case.
    """
    for name, network in child.networks.items():
        network.load_state_dict(parent.networks[name].state_dict())
    for name, optimizer in child.optimizers.items():
        if type(parent.optimizers.get(name)) is type(optimizer):
            optimizer.load_state_dict(parent.optimizers[name].state_dict())
    if child.replay is not None:
        child.replay.restore(parent.replay.tensors())
    if child.spec.algorithm == parent.spec.algorithm:
        child.numbers = parent.numbers
    for name in _SAME:
        setattr(child, name, getattr(parent, name))
    worlds = parent.environments.state()
    if child.spec.twin:
        child.generator = parent.generator
    else:
        fresh = child.environments.state()
        worlds |= {key: fresh[key] for key in _RANDOM if key in fresh}
    child.environments.load_state(worlds)
    return child
