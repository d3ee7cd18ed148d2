"""stub"""
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import UOp
def choose_axes(sink: UOp, renderer: Renderer) -> UOp:
    return sink
