"""What can be known, and what to measure next."""

from fmepy.design.structural import StructuralIdentifiability as StructuralIdentifiability
from fmepy.design.structural import structural_identifiability as structural_identifiability
