"""Checks that the keys of a group are protected."""

from __future__ import annotations

import warnings
from ipaddress import ip_address

from farwrite.torch import environment
from farwrite.torch.options import Options
from farwrite.torch.rendezvous import Place

_warned = False


def check_trust(place: Place, options: Options, address: str) -> None:
    """Check that a group without a key may exchange the keys of its queue pairs through the store.

    The group may do this if the user trusts the store, or if this rank announces a loopback `address`, to
    which only this machine can send packets. In a group without a key whose ranks have other addresses, rank
    0 warns once in a process that the data of the group is not protected on the network.

    Raises
    ------
    ValueError
        If the group has neither a key nor a trusted store. The message says which variables set them.
    """
    global _warned
    if options.key is not None or ip_address(address).is_loopback:
        return
    if not options.trusted_store:
        raise ValueError(
            f"{place.describe()}: the group has no key, and the address {address} of this rank is not a "
            f"loopback address: set {environment.KEY_FILE} to a file with 32 secret bytes (openssl rand 32) "
            f"that all ranks have, or {environment.TRUSTED_STORE}=1 if only the ranks can read the store"
        )
    if place.rank == 0 and not _warned:
        _warned = True
        warnings.warn(
            f"{place.describe()}: the group has no key, so anyone on the network between the ranks can "
            f"read and change its data: set {environment.KEY_FILE} to a file with 32 secret bytes (openssl "
            "rand 32)",
            RuntimeWarning,
            stacklevel=2,
        )
