"""evidence/bench/products.py: the products of a program of XLA, and what they compute."""

import numpy as np
import pytest

PROGRAM = """
%fused (x: f32[2,3,4]) -> f32[2,3,5] {
  %x = f32[2,3,4]{1,2,0} parameter(0)
  %y = f32[2,4,5]{2,1,0} parameter(1)
  ROOT %dot.1 = f32[2,3,5]{2,1,0} dot(%x, %y), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, \
rhs_contracting_dims={1}, metadata={op_name="a"}
}

ENTRY %main {
  %x = bf16[6,4]{1,0} parameter(0)
  %dot.2 = f32[6,6]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %dot.3 = f32[6,6]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %sum = f32[6,6]{1,0} add(%dot.2, %dot.3)
}
"""


@pytest.fixture(scope="module")
def products(evidence_script):
    return evidence_script("bench/products.py")


def test_products_have_the_types_of_their_own_computation(products):
    found = products.products(PROGRAM)
    batched, plain = sorted(found, key=lambda product: product.flops())
    assert found == {batched: 1, plain: 2}
    assert batched.x == products.Operand("f32", (2, 3, 4), (0, 2, 1)) and batched.flops() == 2 * 2 * 3 * 4 * 5
    assert (batched.batch, batched.summed) == (((0,), (0,)), ((2,), (1,)))
    assert plain.x == plain.y == products.Operand("bf16", (6, 4), (0, 1)) and plain.flops() == 2 * 6 * 6 * 4


@pytest.mark.xla
def test_a_product_is_computed_with_its_layout(products):
    batched, plain = sorted(products.products(PROGRAM), key=lambda product: product.flops())
    run = products.runner(batched)
    x, y = (variable.numpy() for variable in run.python_function.__closure__[-1].cell_contents)
    assert x.shape == (2, 4, 3)  # as in memory
    np.testing.assert_allclose(run(), x.swapaxes(1, 2) @ y, rtol=1e-5)
    assert products.runner(plain)().dtype == "float32"
