; Ops that backends run as one.

;;; queries, keys and values
graph "g"
  symbol T in 1..=8
  input %0 "x": bf16[1, T, 64]
  constant %1 "q": u32[16, 8]
  constant %2 "q_scales": bf16[16, 2]
  constant %3 "q_biases": bf16[16, 2]
  constant %4 "k": u32[8, 8]
  constant %5 "k_scales": bf16[8, 2]
  constant %6 "k_biases": bf16[8, 2]
  constant %7 "v": u32[8, 8]
  constant %8 "v_scales": bf16[8, 2]
  constant %9 "v_biases": bf16[8, 2]
{
  %10: bf16[1, T, 16] = quantized_matmul(x=%0, w=%1, scales=%2, biases=%3, group_size=32, bits=4, mode="affine")
  %11: bf16[1, T, 16] = neg(x=%10)
  %12: bf16[1, T, 8] = quantized_matmul(x=%0, w=%4, scales=%5, biases=%6, group_size=32, bits=4, mode="affine")
  %13: bf16[1, T, 8] = quantized_matmul(x=%0, w=%7, scales=%8, biases=%9, group_size=32, bits=4, mode="affine")
}
output %11 "a": bf16[1, T, 16]
output %12 "b": bf16[1, T, 8]
output %13 "c": bf16[1, T, 8]

; becomes
graph "g"
  symbol T in 1..=8
  input %0 "x": bf16[1, T, 64]
  constant %1 "q": u32[16, 8]
  constant %2 "q_scales": bf16[16, 2]
  constant %3 "q_biases": bf16[16, 2]
  constant %4 "k": u32[8, 8]
  constant %5 "k_scales": bf16[8, 2]
  constant %6 "k_biases": bf16[8, 2]
  constant %7 "v": u32[8, 8]
  constant %8 "v_scales": bf16[8, 2]
  constant %9 "v_biases": bf16[8, 2]
{
  %10: bf16[1, T, 16], %12: bf16[1, T, 8], %13: bf16[1, T, 8] = projections(x=%0, w=[%1, %4, %7], scales=[%2, %5, %8], biases=[%3, %6, %9], group_size=32, bits=4, mode="affine")
  %11: bf16[1, T, 16] = neg(x=%10)
}
output %11 "a": bf16[1, T, 16]
output %12 "b": bf16[1, T, 8]
output %13 "c": bf16[1, T, 8]

;;; products in a form without biases
graph "g"
  input %0 "x": f32[2, 64]
  constant %1 "w": u32[16, 8]
  constant %2 "s": u8[16, 2]
{
  %3: f32[2, 16] = quantized_matmul(x=%0, w=%1, scales=%2, group_size=32, bits=4, mode="mxfp4")
  %4: f32[2, 16] = quantized_matmul(x=%0, w=%1, scales=%2, group_size=32, bits=4, mode="mxfp4")
}
output %3 "a": f32[2, 16]
output %4 "b": f32[2, 16]

; becomes
graph "g"
  input %0 "x": f32[2, 64]
  constant %1 "w": u32[16, 8]
  constant %2 "s": u8[16, 2]
{
  %3: f32[2, 16], %4: f32[2, 16] = projections(x=%0, w=[%1, %1], scales=[%2, %2], biases=[], group_size=32, bits=4, mode="mxfp4")
}
output %3 "a": f32[2, 16]
output %4 "b": f32[2, 16]

;;; products of two tensors, of two forms, or with a weight that is no constant
graph "g"
  input %0 "x": f32[2, 64]
  input %1 "y": f32[2, 64]
  input %2 "given": u32[16, 8]
  constant %3 "w": u32[16, 8]
  constant %4 "s": f32[16, 2]
  constant %5 "wide": u32[16, 16]
{
  %6: f32[2, 16] = quantized_matmul(x=%0, w=%3, scales=%4, biases=%4, group_size=32, bits=4, mode="affine")
  %7: f32[2, 16] = quantized_matmul(x=%1, w=%3, scales=%4, biases=%4, group_size=32, bits=4, mode="affine")
  %8: f32[2, 16] = quantized_matmul(x=%0, w=%5, scales=%4, biases=%4, group_size=32, bits=8, mode="affine")
  %9: f32[2, 16] = quantized_matmul(x=%0, w=%2, scales=%4, biases=%4, group_size=32, bits=4, mode="affine")
}
output %6 "a": f32[2, 16]
output %7 "b": f32[2, 16]
output %8 "c": f32[2, 16]
output %9 "d": f32[2, 16]

; stays

;;; the gate of a feed-forward block
graph "g"
  symbol T in 1..=8
  input %0 "x": bf16[1, T, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "gate_scales": bf16[16, 2]
  constant %3 "up": u32[16, 8]
  constant %4 "up_scales": bf16[16, 2]
{
  %5: bf16[1, T, 16] = quantized_matmul(x=%0, w=%1, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %6: bf16[1, T, 16] = silu(x=%5)
  %7: bf16[1, T, 16] = quantized_matmul(x=%0, w=%3, scales=%4, biases=%4, group_size=32, bits=4, mode="affine")
  %8: bf16[1, T, 16] = multiply(a=%6, b=%7)
}
output %8 "y": bf16[1, T, 16]

; becomes
graph "g"
  symbol T in 1..=8
  input %0 "x": bf16[1, T, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "gate_scales": bf16[16, 2]
  constant %3 "up": u32[16, 8]
  constant %4 "up_scales": bf16[16, 2]
{
  %5: bf16[1, T, 16] = gated_projection(x=%0, w=[%1, %3], scales=[%2, %4], biases=[%2, %4], group_size=32, bits=4, mode="affine", activation="silu")
}
output %5 "y": bf16[1, T, 16]

;;; the same with the tanh form of GELU, the other way round
graph "g"
  input %0 "x": f32[2, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "s": f32[16, 2]
  constant %3 "up": u32[16, 8]
{
  %4: f32[2, 16] = quantized_matmul(x=%0, w=%1, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %5: f32[2, 16] = quantized_matmul(x=%0, w=%3, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %6: f32[2, 16] = gelu(x=%4, approximate="tanh")
  %7: f32[2, 16] = multiply(a=%5, b=%6)
}
output %7 "y": f32[2, 16]

; becomes
graph "g"
  input %0 "x": f32[2, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "s": f32[16, 2]
  constant %3 "up": u32[16, 8]
{
  %4: f32[2, 16] = gated_projection(x=%0, w=[%1, %3], scales=[%2, %2], biases=[%2, %2], group_size=32, bits=4, mode="affine", activation="gelu_tanh")
}
output %4 "y": f32[2, 16]

;;; SiLU as it is spelled out
graph "g"
  input %0 "x": bf16[2, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "s": bf16[16, 2]
  constant %3 "up": u32[16, 8]
{
  %4: bf16[2, 16] = quantized_matmul(x=%0, w=%1, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %5: bf16[2, 16] = quantized_matmul(x=%0, w=%3, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %6: bf16[2, 16] = sigmoid(x=%4)
  %7: bf16[2, 16] = multiply(a=%6, b=%4)
  %8: bf16[2, 16] = multiply(a=%7, b=%5)
}
output %8 "y": bf16[2, 16]

; becomes
graph "g"
  input %0 "x": bf16[2, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "s": bf16[16, 2]
  constant %3 "up": u32[16, 8]
{
  %4: bf16[2, 16] = gated_projection(x=%0, w=[%1, %3], scales=[%2, %2], biases=[%2, %2], group_size=32, bits=4, mode="affine", activation="sigmoid_product")
}
output %4 "y": bf16[2, 16]

;;; a gate that somebody else reads leaves two products
graph "g"
  input %0 "x": bf16[2, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "s": bf16[16, 2]
  constant %3 "up": u32[16, 8]
{
  %4: bf16[2, 16] = quantized_matmul(x=%0, w=%1, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %5: bf16[2, 16] = silu(x=%4)
  %6: bf16[2, 16] = quantized_matmul(x=%0, w=%3, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")
  %7: bf16[2, 16] = multiply(a=%5, b=%6)
}
output %7 "y": bf16[2, 16]
output %4 "gate": bf16[2, 16]

; becomes
graph "g"
  input %0 "x": bf16[2, 64]
  constant %1 "gate": u32[16, 8]
  constant %2 "s": bf16[16, 2]
  constant %3 "up": u32[16, 8]
{
  %4: bf16[2, 16], %6: bf16[2, 16] = projections(x=%0, w=[%1, %3], scales=[%2, %2], biases=[%2, %2], group_size=32, bits=4, mode="affine")
  %5: bf16[2, 16] = silu(x=%4)
  %7: bf16[2, 16] = multiply(a=%5, b=%6)
}
output %7 "y": bf16[2, 16]
output %4 "gate": bf16[2, 16]

;;; a residual and the norm that reads it
graph "g"
  symbol T in 1..=8
  input %0 "x": bf16[1, T, 8]
  input %1 "more": bf16[1, T, 8]
  constant %2 "w": bf16[8]
{
  %3: bf16[1, T, 8] = add(a=%0, b=%1)
  %4: bf16[1, T, 8] = neg(x=%3)
  %5: bf16[1, T, 8] = rms_norm(x=%3, weight=%2, eps=1e-6)
}
output %4 "y": bf16[1, T, 8]
output %5 "z": bf16[1, T, 8]

; becomes
graph "g"
  symbol T in 1..=8
  input %0 "x": bf16[1, T, 8]
  input %1 "more": bf16[1, T, 8]
  constant %2 "w": bf16[8]
{
  %3: bf16[1, T, 8], %5: bf16[1, T, 8] = add_rms_norm(a=%0, b=%1, weight=%2, eps=1e-6)
  %4: bf16[1, T, 8] = neg(x=%3)
}
output %4 "y": bf16[1, T, 8]
output %5 "z": bf16[1, T, 8]

;;; a sum that broadcasts, one that converts, and a weight that comes too late
graph "g"
  input %0 "x": f32[2, 8]
  input %1 "row": f32[1, 8]
  input %2 "half": bf16[2, 8]
  constant %3 "w": f32[8]
{
  %4: f32[2, 8] = add(a=%0, b=%1)
  %5: f32[2, 8] = rms_norm(x=%4, eps=1e-6)
  %6: f32[2, 8] = add(a=%0, b=%2)
  %7: f32[2, 8] = rms_norm(x=%6, eps=1e-6)
  %8: f32[2, 8] = add(a=%0, b=%0)
  %9: f32[8] = neg(x=%3)
  %10: f32[2, 8] = rms_norm(x=%8, weight=%9, eps=1e-6)
}
output %5 "a": f32[2, 8]
output %7 "b": f32[2, 8]
output %10 "c": f32[2, 8]

; stays

;;; turned keys on their way into the cache
graph "g"
  input %0 "k": bf16[1, 2, 3, 16]
  input %1 "position": i64[1]
  buffer %2 "cache": bf16[1, 2, 8, 16] -> %4
{
  %3: bf16[1, 2, 3, 16] = rope(x=%0, dims=16, offset=%1, base=10000.0)
  %4: bf16[1, 2, 8, 16] = slice_update(dst=%2, update=%3, axis=2, start=2, stop=5)
}
output %4 "all": bf16[1, 2, 8, 16]

; becomes
graph "g"
  input %0 "k": bf16[1, 2, 3, 16]
  input %1 "position": i64[1]
  buffer %2 "cache": bf16[1, 2, 8, 16] -> %3
{
  %3: bf16[1, 2, 8, 16] = rope_update(x=%0, dims=16, offset=%1, base=10000.0, dst=%2, axis=2, start=2, stop=5)
}
output %3 "all": bf16[1, 2, 8, 16]

;;; turned keys that are asked for their length
graph "g"
  symbol T in 1..=3
  input %0 "k": bf16[1, 2, T, 16]
  input %1 "position": i64[1]
  buffer %2 "cache": bf16[1, 2, 8, 16] -> %6
{
  %3: bf16[1, 2, T, 16] = rope(x=%0, dims=16, offset=%1, base=10000.0)
  %4: int(T) = sym_size(a=%3, dim=2)
  %5: int(T+2) = add_int(a=%4, b=2)
  %6: bf16[1, 2, 8, 16] = slice_update(dst=%2, update=%3, axis=2, start=2, stop=%5)
}
output %6 "all": bf16[1, 2, 8, 16]

; becomes
graph "g"
  symbol T in 1..=3
  input %0 "k": bf16[1, 2, T, 16]
  input %1 "position": i64[1]
  buffer %2 "cache": bf16[1, 2, 8, 16] -> %5
{
  %3: int(T) = sym_size(a=%0, dim=2)
  %4: int(T+2) = add_int(a=%3, b=2)
  %5: bf16[1, 2, 8, 16] = rope_update(x=%0, dims=16, offset=%1, base=10000.0, dst=%2, axis=2, start=2, stop=%4)
}
output %5 "all": bf16[1, 2, 8, 16]

;;; keys that somebody else reads, and a cache of another dtype
graph "g"
  input %0 "k": f32[1, 2, 3, 16]
  input %1 "position": i64[1]
  input %2 "cache": f32[1, 2, 8, 16]
  input %3 "half": bf16[1, 2, 8, 16]
{
  %4: f32[1, 2, 3, 16] = rope(x=%0, dims=16, offset=%1, base=10000.0)
  %5: f32[1, 2, 8, 16] = slice_update(dst=%2, update=%4, axis=2, start=2, stop=5)
  %6: f32[1, 2, 3, 16] = rope(x=%0, dims=8, offset=%1, base=10000.0)
  %7: bf16[1, 2, 8, 16] = slice_update(dst=%3, update=%6, axis=2, start=2, stop=5)
}
output %4 "k": f32[1, 2, 3, 16]
output %5 "a": f32[1, 2, 8, 16]
output %7 "b": bf16[1, 2, 8, 16]

; stays

;;; inside a branch
graph "g"
  input %0 "x": f32[2, 8]
  input %1 "pick": bool
{
  %2: f32[2, 8] = if(cond=%1) then {
    %3: f32[2, 8] = add(a=%0, b=%0)
    %4: f32[2, 8] = rms_norm(x=%3, eps=1e-6)
    yield %4
  } else {
    yield %0
  }
}
output %2 "y": f32[2, 8]
; becomes
graph "g"
  input %0 "x": f32[2, 8]
  input %1 "pick": bool
{
  %2: f32[2, 8] = if(cond=%1) then {
    %3: f32[2, 8], %4: f32[2, 8] = add_rms_norm(a=%0, b=%0, eps=1e-6)
    yield %4
  } else {
    yield %0
  }
}
output %2 "y": f32[2, 8]

;;; an embedding of packed weights
graph "g"
  symbol T in 1..=8
  input %0 "tokens": i64[1, T]
  constant %1 "w": u32[100, 8]
  constant %2 "s": bf16[100, 2]
  constant %3 "b": bf16[100, 2]
{
  %4: i32[1, T] = as_type(x=%0, scalar_type=i32)
  %5: u32[1, T, 8] = take(x=%1, index=%4, axis=0)
  %6: bf16[1, T, 2] = take(x=%2, index=%4, axis=0)
  %7: bf16[1, T, 2] = take(x=%3, index=%4, axis=0)
  %8: f32[1, T, 64] = dequantize(w=%5, scales=%6, biases=%7, group_size=32, bits=4, mode="affine", dtype=f32)
}
output %8 "y": f32[1, T, 64]

; becomes
graph "g"
  symbol T in 1..=8
  input %0 "tokens": i64[1, T]
  constant %1 "w": u32[100, 8]
  constant %2 "s": bf16[100, 2]
  constant %3 "b": bf16[100, 2]
{
  %4: i32[1, T] = as_type(x=%0, scalar_type=i32)
  %5: f32[1, T, 64] = packed_embedding(w=%1, scales=%2, biases=%3, indices=%4, group_size=32, bits=4, mode="affine", dtype=f32)
}
output %5 "y": f32[1, T, 64]

;;; rows that two tensors pick, and codes that somebody else reads
graph "g"
  input %0 "a": i64[2]
  input %1 "b": i64[2]
  constant %2 "w": u32[100, 8]
  constant %3 "s": u8[100, 2]
{
  %4: u32[2, 8] = take(x=%2, index=%0, axis=0)
  %5: u8[2, 2] = take(x=%3, index=%1, axis=0)
  %6: f32[2, 64] = dequantize(w=%4, scales=%5, group_size=32, bits=4, mode="mxfp4", dtype=f32)
  %7: u8[2, 2] = take(x=%3, index=%0, axis=0)
  %8: f32[2, 64] = dequantize(w=%4, scales=%7, group_size=32, bits=4, mode="mxfp4", dtype=f32)
}
output %6 "x": f32[2, 64]
output %8 "y": f32[2, 64]

; stays
