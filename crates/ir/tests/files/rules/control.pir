; Branches, loops, random bits, known kernels.

;;; a branch yields what both sides yield
graph "a branch yields what both sides yield"
  symbol T in 2..=64
  symbol open in 0..=64
  symbol either in 1..=2
  input %0 "x": f32[2, T]
  input %1 "y": f32[2, 4]
  input %2 "c": int(T)
  input %3 "p": bool
{
  %4: f32[2, T] = if(cond=%2) then {
    yield %0
  } else {
    %5: f32[2, T] = neg(x=%0)
    yield %5
  }
  %6: f32[2, open], %7: int(either) = if(cond=1) then {
    %8: int(1) = add_int(a=0, b=1)
    yield %0, %8
  } else {
    %9: int(2) = add_int(a=1, b=1)
    yield %1, %9
  }
  if(cond=%2) then {} else {}
  %10: bool = if(cond=%3) then {
    yield %3
  } else {
    yield %3
  }
}

;;; branches nest
graph "branches nest"
  input %0 "x": f32[3]
  input %1 "c": int(1)
{
  %2: f32[3] = if(cond=%1) then {
    %3: f32[3] = if(cond=%1) then {
      yield %0
    } else {
      %4: f32[3] = exp(x=%0)
      yield %4
    }
    %5: f32[3] = add(a=%3, b=%0)
    yield %5
  } else {
    yield %0
  }
}

;;; branches that do not meet
graph "branches that do not meet"
  input %0 "x": f32[3]
  input %1 "y": f16[3]
  input %2 "z": f32[3, 1]
  input %3 "c": int(1)
  input %4 "f": float
{
  %5: f32[3] = if(cond=%3) then {  ; error: values of different types meet: %0 and %1
    yield %0
  } else {
    yield %1
  }
  %6: f32[3] = if(cond=%3) then {  ; error: values of different types meet: %0 and %2
    yield %0
  } else {
    yield %2
  }
  %7: f32[3] = if(cond=%3) then {  ; error: one branch yields 1 values, the other 2
    yield %0
  } else {
    yield %0, %0
  }
  if(cond=%3) then {  ; error: 0 results are listed where the op gives 1
    yield %0
  } else {
    yield %0
  }
  %8: f32[3] = if(cond=%4) then {  ; error: %4 is not an integer
    yield %0
  } else {
    yield %0
  }
  %9: f32[3] = if(cond=%3) then (%10: f32[3]) {  ; error: a branch takes no parameters
    yield %10
  } else {
    yield %0
  }
}

;;; a loop stacks what its body gives and carries the rest
graph "a loop stacks what its body gives and carries the rest"
  symbol T in 2..=64
  input %0 "xs": f32[2, T, 4]
  input %1 "ts": i32[2, T]
  input %2 "h": f32[2, 4]
  input %3 "scale": f32[4]
{
  %4: f32[2, T, 4], %5: f32[2, 4] = scan(originals=[%0, %1], carry=[%2]) body (%6: f32[2, 4], %7: i32[2], %8: f32[2, 4]) {
    %9: f32[2, 4] = multiply(a=%8, b=%3)
    %10: f32[2, 4] = add(a=%9, b=%6)
    %11: f32[2, 4] = tanh(x=%10)
    yield %11, %10
  }
}

;;; loops over the first and the last axis
graph "loops over the first and the last axis"
  input %0 "xs": f32[5, 4]
  input %1 "h": f32[]
{
  %2: f32[5, 4] = scan(originals=[%0], carry=[], scan_axis=0) body (%3: f32[4]) {
    %4: f32[4] = exp(x=%3)
    yield %4
  }
  %5: f32[] = scan(originals=[%0], carry=[%1], scan_axis=-1) body (%6: f32[5], %7: f32[]) {
    %8: f32[] = sum(x=%6)
    %9: f32[] = add(a=%7, b=%8)
    yield %9
  }
}

;;; loops that do not fit
graph "loops that do not fit"
  input %0 "xs": f32[2, 5, 4]
  input %1 "ys": f32[2, 6]
  input %2 "h": f32[2]
  input %3 "h16": f16[2]
  input %4 "s": f32[]
{
  %5: f32[2, 5, 4] = scan(originals=[], carry=[]) body {}  ; error: nothing to scan
  %6: f32[2, 5, 4] = scan(originals=[%0], carry=[]) body {}  ; error: 1 slices and 0 carried values for a body with 0 parameters and 0 results
  scan(originals=[%0], carry=[]) body (%7: f32[2, 5]) {}  ; error: shapes of a value that a loop passes on differ: 4 and 5
  scan(originals=[%0], carry=[]) body (%8: f16[2, 4]) {}  ; error: a value that a loop passes on cannot be f16; f32 is needed
  scan(originals=[%0, %1], carry=[]) body (%9: f32[2, 4], %10: f32[2]) {}  ; error: lengths of scanned tensors differ: 5 and 6
  scan(originals=[%4], carry=[]) body (%11: f32[]) {}  ; error: axis 1 is outside a tensor of rank 0
  %12: f32[2] = scan(originals=[%0], carry=[%2]) body (%13: f32[2, 4], %14: f16[2]) {  ; error: a value that a loop passes on cannot be f16; f32 is needed
    yield %14
  }
  %15: f32[2] = scan(originals=[%0], carry=[%2]) body (%16: f32[2, 4], %17: f32[2]) {  ; error: a value that a loop passes on cannot be f16; f32 is needed
    %18: f16[2] = as_type(x=%17, scalar_type=f16)
    yield %18
  }
  %19: f32[2] = scan(originals=[%0], carry=[%2]) body (%20: f32[2, 4], %21: f32[2]) {  ; error: shapes of a value that a loop passes on differ: [2] and [2, 4]
    yield %20
  }
}

;;; random bits
graph "random bits"
  symbol T in 2..=64
  input %0 "t": int(T)
  input %1 "seed": int(42)
  input %2 "x": f32[1]
{
  %3: u32[2, T] = random_bits(shape=[2, %0])
  %4: u8[3] = random_bits(shape=[3], seed=%1, width=1)
  %5: u16[3] = random_bits(shape=[3], seed=%1, width=2)
  %6: u32[] = random_bits(shape=[])
  %7: u64[3] = random_bits(shape=[3], width=8)  ; error: random elements of 8 bytes
  %8: u32[3] = random_bits(shape=[-3])  ; error: -3 is not a size
  %9: u32[3] = random_bits(shape=[3], seed=%2)  ; error: %2 is not a scalar
}

;;; kernels known by name
graph "kernels known by name"
  symbol T in 2..=64
  input %0 "x": f32[1, T, 4]
  input %1 "t": int(T)
  input %2 "n": int(1)
{
  %3: f32[1, T, 4], %4: f16[2] = metal_kernel(name="gated_delta", source="float4 a;\n// \"quoted\"\n", inputs=[%0, %0], grid=[32, %1, 1], threadgroup=[32, 1, 1], header="#include <metal_stdlib>", input_names=["q", "k"], output_names=["y", "state"], ensure_row_contiguous=false, atomic_outputs=true, output_shapes_flat=[1, %1, 4, 2], output_shape_lengths=[3, 1], output_dtypes=[f32, f16], template_arg_names=["D"], template_arg_kinds=[0, -1, 127], template_arg_values=[-2147483648, 64], init_value=-0.0)
  metal_kernel(name="", source="", inputs=[], grid=[], threadgroup=[])
  %5: f32[2] = metal_kernel(name="k", source="", inputs=[%0], grid=[1, 1, 1], threadgroup=[1, 1, 1], output_shapes_flat=[2], output_shape_lengths=[1])  ; error: 1 output shapes and 0 output dtypes
  %6: f32[2] = metal_kernel(name="k", source="", inputs=[%0], grid=[1, 1, 1], threadgroup=[1, 1, 1], output_shapes_flat=[2], output_shape_lengths=[2], output_dtypes=[f32])  ; error: fewer sizes than the output ranks need
  %7: f32[2] = metal_kernel(name="k", source="", inputs=[%0], grid=[1, 1, 1], threadgroup=[1, 1, 1], output_shapes_flat=[2, 3], output_shape_lengths=[1], output_dtypes=[f32])  ; error: more sizes than the output ranks need
  %8: f32[2] = metal_kernel(name="k", source="", inputs=[%0], grid=[1, 1, 1], threadgroup=[1, 1, 1], output_shapes_flat=[2], output_shape_lengths=[-1], output_dtypes=[f32])  ; error: rank -1
  metal_kernel(name="k", source="", inputs=[%2], grid=[1, 1, 1], threadgroup=[1, 1, 1])  ; error: %2 is not a tensor
  metal_kernel(name="k", source="", inputs=[%0], grid=[%0, 1, 1], threadgroup=[1, 1, 1])  ; error: %0 is not a scalar
}
