"""Weights from a trainer to many sites: each site receives the newest version into its own tensors.

::

    publisher = weights.Publisher(store)  # the trainer
    publisher.publish(model.state_dict())

    subscriber = weights.Subscriber(store)  # each site
    version = subscriber.receive(model.state_dict())

A site and the trainer are a group of two ranks, so that a slow or dead site delays no other one that receives
the same version. A site asks for what has changed since the version that it has. So a site that joins late
gets all tensors, and one that has missed versions gets each tensor once. What it receives is a file of
safetensors, whose values go into the tensors without a copy if they are contiguous and in memory of the host.
"""

from farwrite.torch.weights.publisher import Publisher, Site
from farwrite.torch.weights.subscriber import Subscriber

__all__ = ["Publisher", "Site", "Subscriber"]
