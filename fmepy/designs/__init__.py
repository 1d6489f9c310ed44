"""What can be known, and what to measure next."""

from fmepy.designs.optimal import OptimalDesign as OptimalDesign
from fmepy.designs.optimal import design as design
from fmepy.designs.structural import StructuralIdentifiability as StructuralIdentifiability
from fmepy.designs.structural import structural_identifiability as structural_identifiability
