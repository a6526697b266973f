"""Training steps through `torch.compile`, and what it has to be told about models this small.

Imported only when something is compiled, since the compiler takes a while to import.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.config
from torch import Tensor, fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.utils import _pytree as pytree

from mixerscope import kernels
from mixerscope.kernels.layout import PROCESSORS
from mixerscope.kernels.precision import exact_products
from mixerscope.training import product as products

TILE = 64
"""Rows and columns of a result that one processor of a GPU computes in one go."""
LONG = 512
"""Terms in the sums of a product, from which on cutting them pays."""
SHORTEST = 64
"""Terms that each part has at least."""
ALIGNED = 4
"""Parts have a multiple of 16 bytes, which fast kernels ask for."""

WORKERS = "TORCH_WARM_POOL"
"""A variable of the environment; 0 has torch start no processes before there is something to compile."""
TRANSPOSED = [0, 2, 1]
aten = torch.ops.aten


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, compiled anew for every combination of shapes it meets."""
    kernels.one_triton_cache()
    options: dict[str, Any] = {
        # Choosing between kernels by timing them would make the order of sums, and so the last bits, a matter of luck.
        "deterministic": True,
        "post_grad_custom_pre_pass": BetterProducts(),
    }
    # Which the compiler cannot look into; it compiles anew whenever that setting has changed.
    torch.compiler.assume_constant_result(exact_products)
    quick = torch.compile(function, dynamic=False, fullgraph=True, options=options)
    # Every cohort has shapes of its own: none is to become a variable, and there is no number of them that is too many.
    settings = {
        "automatic_dynamic_shapes": False,
        "recompile_limit": 1_000_000,
        "accumulated_recompile_limit": 1_000_000,
    }

    def call(*inputs: Any) -> Tensor:
        with torch._dynamo.config.patch(settings):
            return quick(*inputs)

    return call


def import_all() -> None:
    """What is imported when something is first compiled; it takes seconds.

    Without the processes that compile kernels, which torch otherwise starts on import: they look at the GPU, and of one
    that is for a single process at a time they would take hold before those that train.
    """
    before = os.environ.get(WORKERS)
    os.environ[WORKERS] = "0"
    try:
        importlib.import_module("torch._inductor.compile_fx")
    finally:
        del os.environ[WORKERS]
        if before is not None:
            os.environ[WORKERS] = before


def start_workers() -> None:
    """Starts these processes after all, so that they are ready once there are kernels to compile."""
    kernels.one_triton_cache()
    importlib.import_module("torch._inductor.async_compile").maybe_warm_pool()


class BetterProducts(CustomGraphPass):
    """What becomes of products of matrices: of large ones in strict float32, and of gradients of weights.

    Each gradient of a weight is the transpose of a product, which would have to be copied for the update, a launch per
    weight: it becomes the product of the transposes, in the other order, which need no copy. Large products in strict
    float32 are handed to the operator that has a kernel for them. And where another has few numbers but long sums, over
    all tokens of a batch, a few processors would be busy for long while the others wait: it is computed in several
    parts, which are added up afterwards.
    """

    def __call__(self, graph: fx.Graph) -> None:
        output = graph.output_node()
        # A weight's gradient may be a piece of one of several weights that were multiplied with as one.
        wholes = [node.args[0] if _is_piece(node) else node for node in pytree.arg_tree_leaves(*output.args)]
        found = [isinstance(node, fx.Node) and _is_transpose_of_product(node) for node in wholes]
        for node in dict.fromkeys(node for node, turn in zip(wholes, found, strict=True) if turn):
            self._turn(graph, node)
        # The compiler would have these lie in memory as they did before.
        as_before = output.meta.get("user_visible_output_idxs", [])
        output.meta["user_visible_output_idxs"] = [index for index in as_before if not found[index]]
        for node in graph.find_nodes(op="call_function", target=aten.bmm.default):
            left, right = (argument.meta["val"] for argument in node.args)
            if products.pays(left, right):
                self._hand_over(graph, node)
                continue
            parts = number_of_parts(left.shape, right.shape)
            # Only where the parts of both factors lie so in memory that a batch of them needs no copy.
            if parts > 1 and _follow_on(left, 2) and _follow_on(right, 1):
                self._cut(graph, node, left.shape, right.shape, parts)

    def uuid(self) -> bytes:
        # What is compiled is kept on disk, and must not be found by those who ask for something else.
        asked_for = f"{exact_products()} {kernels.wanted()}"
        return get_hash_for_files((__file__, products.__file__), asked_for)

    @staticmethod
    def _turn(graph: fx.Graph, node: fx.Node) -> None:
        product = node.args[0]
        assert isinstance(product, fx.Node)
        with graph.inserting_before(node):
            right, left = (graph.call_function(aten.permute.default, (factor, TRANSPOSED)) for factor in product.args)
            turned = graph.call_function(aten.bmm.default, (left, right))
        for new, old in zip((right, left), product.args, strict=True):
            assert isinstance(old, fx.Node)
            new.meta["val"] = old.meta["val"].permute(TRANSPOSED)
        turned.meta["val"] = node.meta["val"].contiguous()
        node.replace_all_uses_with(turned)
        for piece in filter(_is_piece, turned.users):
            piece.meta["val"] = aten.slice.Tensor(turned.meta["val"], *piece.args[1:])
        graph.erase_node(node)
        graph.erase_node(product)

    @staticmethod
    def _hand_over(graph: fx.Graph, node: fx.Node) -> None:
        with graph.inserting_before(node):
            handed_over = graph.call_function(torch.ops.mixerscope.product.default, node.args)
        handed_over.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(handed_over)
        graph.erase_node(node)

    @staticmethod
    def _cut(graph: fx.Graph, node: fx.Node, left: torch.Size, right: torch.Size, parts: int) -> None:
        (batch, rows, terms), columns = left, right[2]
        each = terms // parts
        with graph.inserting_before(node):

            def call(target: Any, *arguments: Any) -> fx.Node:
                return graph.call_function(target, arguments)

            a = call(aten.reshape.default, node.args[0], [batch, rows, parts, each])
            a = call(aten.reshape.default, call(aten.permute.default, a, [0, 2, 1, 3]), [batch * parts, rows, each])
            b = call(aten.reshape.default, node.args[1], [batch * parts, each, columns])
            product = call(aten.bmm.default, a, b)
            total = call(aten.sum.dim_IntList, call(aten.reshape.default, product, [batch, parts, rows, columns]), [1])
        total.meta.update(node.meta)  # a product that takes this one as a factor asks for its shape
        node.replace_all_uses_with(total)
        graph.erase_node(node)


def _is_piece(node: object) -> bool:
    """One that nobody else in the graph asks for."""
    return isinstance(node, fx.Node) and node.target is aten.slice.Tensor and _is_result(node)


def _is_result(node: fx.Node) -> bool:
    return all(user.op == "output" for user in node.users)


def _is_transpose_of_product(node: fx.Node) -> bool:
    """One that nobody else in the graph asks for, but for pieces of it."""
    if node.target is not aten.permute.default or node.args[1] != TRANSPOSED:
        return False
    product = node.args[0]
    return (
        isinstance(product, fx.Node)
        and product.target is aten.bmm.default
        and len(product.users) == 1
        and all(user.op == "output" or _is_piece(user) for user in node.users)
    )


def _follow_on(factor: Tensor, terms: int) -> bool:
    """Whether the next matrix of the batch begins where the sum over dimension `terms` of one would go on."""
    return factor.stride(0) == factor.shape[terms] * factor.stride(terms)


def processors() -> int:
    """Of the GPU, or of a large one where there is none: with fewer tiles than this some have nothing to do."""
    if not torch.cuda.is_available():
        return PROCESSORS
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def number_of_parts(left: torch.Size, right: torch.Size) -> int:
    """For a product of [b, rows, terms] and [b, terms, columns]: the fewest that keep all processors busy."""
    (batch, rows, terms), columns = left, right[2]
    tiles = batch * -(-rows // TILE) * -(-columns // TILE)
    busy = processors()
    if terms < LONG or 2 * tiles > busy:
        return 1
    possible = [
        parts
        for parts in range(1, terms // SHORTEST + 1)
        if terms % parts == 0 and (parts == 1 or terms // parts % ALIGNED == 0)
    ]
    return next((parts for parts in possible if parts * tiles >= busy), possible[-1])
