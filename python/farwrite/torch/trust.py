"""Who may read and change what the ranks of a group exchange."""

from __future__ import annotations

import warnings
from ipaddress import ip_address

from farwrite.torch import environment
from farwrite.torch.options import Options
from farwrite.torch.rendezvous import Place

_warned = False


def check_trust(place: Place, options: Options, address: str) -> None:
    """Check that a group without a key may exchange the keys of its queue pairs through the store.

    It may if the user says so, or if this rank announces a loopback `address`: then only this machine can
    send packets to it. Rank 0 warns once in a process that the data of such a group is not protected on a
    network.

    Raises
    ------
    ValueError
        If the user must choose; the message says what to set.
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
