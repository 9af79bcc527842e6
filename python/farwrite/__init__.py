"""How long reliable writes over long, fast, lossy links take.

`farwrite.model` has distributions of completion times, `farwrite.figures` the figures of the paper made
from them.
"""
