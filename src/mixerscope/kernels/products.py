# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Products of float32 numbers on tensor cores, which read ten bits of a fraction, with errors like those of float32.

Each factor is cut into its leading bits and what they leave, and three of the four products of these are added, as
Triton's "tf32x3" does. But that looks for what is not a number in every factor and in every sum: in a delta rule a
quarter of all instructions.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportMissingImports=false

import triton
import triton.language as tl


@triton.jit
def three_products(left, right):  # noqa: ANN201
    large_left, large_right = leading_bits(left), leading_bits(right)
    total = tl.dot(left - large_left, large_right, input_precision="tf32")
    total = tl.dot(large_left, right - large_right, total, input_precision="tf32")
    return tl.dot(large_left, large_right, total, input_precision="tf32")


@triton.jit
def leading_bits(x):  # noqa: ANN201
    """Ten bits of the fraction, rounded. What is infinite stays so."""
    return (x.to(tl.int32, bitcast=True) + 4096 & -8192).to(tl.float32, bitcast=True)
