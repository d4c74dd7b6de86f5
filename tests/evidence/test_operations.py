"""Where a step's time goes: names, shapes and kinds of the operations of a program."""

import pytest

PROGRAM = """
%fused (p: f32[2,3]) -> bf16[2,3] {
  ROOT %convert.1 = bf16[2,3]{1,0} convert(%p)
}
ENTRY %main (a: f32[2,3], b: f32[3,4]) -> f32[2,4] {
  %wrapped_convert.2 = bf16[2,3]{1,0} fusion(%a), kind=kLoop, calls=%fused
  %XlaDotV2.3 = f32[2,4]{1,0} dot(%wrapped_convert.2, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %while.4 = (f32[2,4]{1,0}, s32[]) while(%tuple.1), condition=%c, body=%b
  ROOT %add_convert_fusion = (f32[2,4]{1,0}, f32[2]{0}) fusion(%XlaDotV2.3), kind=kLoop, calls=%fused2
}
"""


@pytest.fixture(scope="module")
def operations(evidence_script):
    return evidence_script("compilers/operations.py")


def test_operations_have_their_results_and_what_only_runs_others_is_left_out(operations):
    assert operations.instructions(PROGRAM) == {
        "convert.1": "bf16[2,3]",
        "wrapped_convert.2": "bf16[2,3]",
        "XlaDotV2.3": "product",
        "add_convert_fusion": "f32[2,4]",
    }


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("XlaDotV2.3", "product", "products"),
        ("ynn_fusion.1", "f32[2]", "products"),
        ("wrapped_convert.2", "bf16[2,3]", "conversions"),
        ("add_convert_fusion", "f32[2]", "conversions with arithmetic"),
        ("multiply_add_fusion.7", "f32[2]", "arithmetic"),
        ("broadcast_gather_fusion", "f32[2]", "copies"),
        ("multiply_reduce_fusion", "f32[2]", "sums"),
    ],
)
def test_kinds(operations, name, shape, kind):
    assert operations.kind_of(name, shape) == kind
