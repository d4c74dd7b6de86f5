"""Costs and memory read from HLO text whose numbers are known by hand."""

from aot.program import Program
from aot.report import kind_of, tables

HLO = """\
HloModule step, is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }

%fused (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %inside = f32[8,128]{1,0:T(8,128)} negate(%p), backend_config={"window_config":{"estimated_cycles":"999"}}
}

%known_body (b: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %b = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%b), index=1
  %i = s32[]{:T(128)} get-tuple-element(%b), index=0
  %twice = f32[8,128]{1,0:T(8,128)} add(%x, %x), metadata={op_name="layer_0/feed_forward/add"}, \
backend_config={"window_config":{"estimated_cycles":"10"}}
  ROOT %t = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%i, /*index=1*/%twice)
}

%counting_body (cb: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %cb = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %i0 = s32[]{:T(128)} get-tuple-element(%cb), index=0
  %step = s32[]{:T(128)} constant(1)
  %i1 = s32[]{:T(128)} add(%i0, %step), backend_config={"window_config":{"estimated_cycles":"2"}}
  %x1 = f32[8,128]{1,0:T(8,128)} get-tuple-element(%cb), index=1
  ROOT %ct = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%i1, /*index=1*/%x1)
}

%counting_condition (cc: (s32[], f32[8,128])) -> pred[] {
  %cc = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %i2 = s32[]{:T(128)} get-tuple-element(%cc), index=0
  %end = s32[]{:T(128)} constant(32)
  ROOT %less = pred[]{:T(512)} compare(%i2, %end), direction=LT
}

%condition (c: (s32[], f32[8,128])) -> pred[] {
  %c = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  ROOT %more = pred[]{:T(512)} constant(true), backend_config={"window_config":{"estimated_cycles":"1"}}
}

%cheap (q: f32[8,128]) -> f32[8,128] {
  ROOT %q = f32[8,128]{1,0:T(8,128)} parameter(0)
}

%dear (r: f32[8,128]) -> f32[8,128] {
  %r = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %n = f32[8,128]{1,0:T(8,128)} negate(%r), backend_config={"window_config":{"estimated_cycles":"500"}}
}

ENTRY %main (batch: s32[4], weight: f32[8,100]) -> (f32[], f32[8,100]) {
  %batch = s32[4]{0:T(128)} parameter(0)
  %weight = f32[8,100]{1,0:T(8,128)} parameter(1)
  %one = f32[8,128]{1,0:T(8,128)} fusion(%weight), kind=kLoop, calls=%fused, metadata={op_name="layer_0/Softmax"}, \
backend_config={"window_config":{"estimated_cycles":"100"}}
  %bits = u32[256]{0:T(256)} rng-bit-generator(%batch), algorithm=rng_default, metadata={op_name="dropout/uniform"}
  %hidden = f32[8,128]{1,0:T(8,128)S(1)} multiply(%one, %bits), metadata={op_name="x_norm/mul"}
  %start = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%batch, %one)
  %loop = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%start), condition=%condition, body=%known_body, \
backend_config={"known_trip_count":{"n":"7"}}
  %open = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%loop), condition=%condition, body=%known_body
  %zero = s32[]{:T(128)} constant(0)
  %copied = s32[]{:T(128)} copy(%zero)
  %from_zero = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%copied, %one)
  %counted = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%from_zero), condition=%counting_condition, \
body=%counting_body
  %taken = f32[8,128]{1,0:T(8,128)} conditional(%batch, %one, %one), branch_computations={%cheap, %dear}
  %loss = f32[]{:T(128)} constant(0)
  %new = f32[8,100]{1,0:T(8,128)} subtract(%weight, %taken), metadata={op_name="adam/Sub"}, \
backend_config={"window_config":{"estimated_cycles":"40"}}
  ROOT %result = (f32[]{:T(128)}, f32[8,100]{1,0:T(8,128)}) tuple(%loss, %new)
}
"""


def cycles(program, **trips):
    return sum(cost.amount for cost in program.costs(**trips))


def test_loops_count_as_often_as_they_run_and_of_branches_the_dearest():
    program = Program(HLO)
    entry, branch, counted = 100 + 40, 500, 32 * 2
    assert cycles(program) == entry + branch + counted + 7 * 11
    assert cycles(program, unknown_trips=3) == entry + branch + counted + 7 * 11 + 3 * 11
    assert program.unknown_loops() == 1


def test_what_has_no_estimate_is_named():
    assert Program(HLO).without_estimate() == {"rng-bit-generator": {"instructions": 1, "bytes": 1024}}


def test_memory_is_of_whole_tiles_in_hbm():
    program = Program(HLO)
    assert program.parameter_bytes() == [4 * 128, 4 * 8 * 128]  # 100 columns take 128
    # Alive during the loops: their carried array, and the one that the body makes of it.
    live = [(cost.name, cost.amount) for cost in program.live_at_peak()]
    assert sorted(live) == [("layer_0/Softmax", 4096), ("layer_0/feed_forward/add", 4096)]


def test_tables_sum_up_by_kind():
    text = "\n".join(tables(Program(HLO), ["inputs", "layer_0/kernel"]))
    for kind in ("optimizer", "attention: softmax", "feed-forward", "weights", "at the peak: feed-forward"):
        assert kind in text
    assert kind_of("gradient_tape/transformer_xl/layer_11_1/feed_forward_norm_1/mul", "fusion") == "layer norm"
    assert kind_of("adam_3/mul", "fusion") == "optimizer"
    assert kind_of("attention_12/einsum/Einsum", "fusion") == "attention: the rest"
    assert kind_of("", "copy") == "the compiler's own: copy"
