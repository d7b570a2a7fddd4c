; Internal ops: what they give is what the plain ops that they stand for give, and they refuse what those refuse.

;;; a residual and its norm
graph "a residual and its norm"
  symbol T in 1..=64
  input %0 "x": bf16[1, T, 8]
  input %1 "more": bf16[1, T, 8]
  input %2 "wide": f32[1, T, 8]
  constant %3 "weight": f32[8]
{
  %4: bf16[1, T, 8], %5: bf16[1, T, 8] = add_rms_norm(a=%0, b=%1, eps=1e-5)
  %6: bf16[1, T, 8], %7: f32[1, T, 8] = add_rms_norm(a=%0, b=%1, weight=%3, eps=1e-5)
  %8: f32[1, T, 8], %9: f32[1, T, 8] = add_rms_norm(a=%0, b=%2, weight=%3, eps=1e-5)
}

;;; a norm wants floats
graph "a norm wants floats"
  input %0 "x": i32[2, 8]
{
  %1: i32[2, 8], %2: i32[2, 8] = add_rms_norm(a=%0, b=%0, eps=1e-5)  ; error: x cannot be i32; a float is needed
}

;;; products of one tensor
graph "products of one tensor"
  symbol T in 1..=64
  input %0 "x": bf16[1, T, 128]
  input %1 "half": f16[2, 128]
  constant %2 "w": u32[4, 16]
  constant %3 "s": bf16[4, 2]
  constant %4 "v": u32[6, 16]
  constant %5 "t": f32[6, 2]
  constant %6 "e": u8[4, 4]
{
  %7: bf16[1, T, 4], %8: f32[1, T, 6] = projections(x=%0, w=[%2, %4], scales=[%3, %5], biases=[%3, %5], group_size=64, bits=4, mode="affine")
  %9: f16[2, 4] = projections(x=%1, w=[%2], scales=[%6], biases=[], group_size=32, bits=4, mode="mxfp4")
}

;;; lists of weights, scales and biases belong together
graph "lists of weights, scales and biases belong together"
  input %0 "x": bf16[1, 128]
  constant %1 "w": u32[4, 16]
  constant %2 "s": bf16[4, 2]
{
  %3: bf16[1, 4], %4: bf16[1, 4] = projections(x=%0, w=[%1, %1], scales=[%2], biases=[%2, %2], group_size=64, bits=4, mode="affine")  ; error: [2, 1, 2] weights, scales and biases
  %5: bf16[1, 4] = projections(x=%0, w=[%1], scales=[%2], biases=[], group_size=64, bits=4, mode="affine")  ; error: affine weights need biases
  %6: bf16[1, 4] = projections(x=%0, w=[%1, %1], scales=[%2, %2], biases=[%2, %2], group_size=64, bits=4, mode="affine")  ; error: 1 results are listed where the op gives 2
}

;;; a gate and what it gates
graph "a gate and what it gates"
  symbol T in 1..=64
  input %0 "x": bf16[1, T, 128]
  constant %1 "w": u32[4, 16]
  constant %2 "s": bf16[4, 2]
{
  %3: bf16[1, T, 4] = gated_projection(x=%0, w=[%1, %1], scales=[%2, %2], biases=[%2, %2], group_size=64, bits=4, mode="affine", activation="silu")
  %4: bf16[1, T, 4] = gated_projection(x=%0, w=[%1, %1], scales=[%2, %2], biases=[%2, %2], group_size=64, bits=4, mode="affine", activation="sigmoid_product")
  %5: bf16[1, T, 4] = gated_projection(x=%0, w=[%1, %1], scales=[%2, %2], biases=[%2, %2], group_size=64, bits=4, mode="affine", activation="gelu")
  %6: bf16[1, T, 4] = gated_projection(x=%0, w=[%1, %1], scales=[%2, %2], biases=[%2, %2], group_size=64, bits=4, mode="affine", activation="gelu_tanh")
}

;;; a gate has two weights and an activation
graph "a gate has two weights and an activation"
  input %0 "x": bf16[1, 128]
  constant %1 "w": u32[4, 16]
  constant %2 "s": bf16[4, 2]
{
  %3: bf16[1, 4] = gated_projection(x=%0, w=[%1], scales=[%2], biases=[%2], group_size=64, bits=4, mode="affine", activation="silu")  ; error: 1 weights of a gate and what it gates
  %4: bf16[1, 4] = gated_projection(x=%0, w=[%1, %1], scales=[%2, %2], biases=[%2, %2], group_size=64, bits=4, mode="affine", activation="relu")  ; error: there is no activation "relu"
}

;;; turned keys go into a cache
graph "turned keys go into a cache"
  symbol T in 1..=64
  symbol P in 0..=63
  input %0 "k": bf16[1, 2, T, 16]
  input %1 "position": i64[1]
  input %2 "from": int(P)
  input %3 "to": int(T+P)
  buffer %4 "cache": bf16[1, 2, 64, 16] -> %5
{
  %5: bf16[1, 2, 64, 16] = rope_update(x=%0, dims=16, offset=%1, dst=%4, axis=2, start=%2, stop=%3)
}

;;; what is written fits the range
graph "what is written fits the range"
  input %0 "k": bf16[1, 2, 3, 16]
  input %1 "position": i64[1]
  input %2 "cache": bf16[1, 2, 64, 16]
{
  %3: bf16[1, 2, 64, 16] = rope_update(x=%0, dims=16, offset=%1, dst=%2, axis=2, start=0, stop=4)  ; error: an update and the slice that it replaces differ: [1, 2, 3, 16] and [1, 2, 4, 16]
  %4: bf16[1, 2, 64, 16] = rope_update(x=%0, dims=17, offset=%1, dst=%2, axis=2, start=0, stop=3)  ; error: 17 rotated features of 16
}

;;; rows of packed weights as numbers
graph "rows of packed weights as numbers"
  symbol T in 1..=64
  input %0 "tokens": i32[1, T]
  constant %1 "w": u32[100, 8]
  constant %2 "s": bf16[100, 2]
  constant %3 "b": bf16[100, 2]
  constant %4 "e": u8[100, 2]
{
  %5: f32[1, T, 64] = packed_embedding(w=%1, scales=%2, biases=%3, indices=%0, group_size=32, bits=4, mode="affine", dtype=f32)
  %6: bf16[1, T, 64] = packed_embedding(w=%1, scales=%4, indices=%0, group_size=32, bits=4, mode="mxfp4", dtype=bf16)
}

;;; rows are picked by integers
graph "rows are picked by integers"
  input %0 "tokens": f32[2]
  constant %1 "w": u32[100, 8]
  constant %2 "s": u8[100, 2]
{
  %3: f32[2, 64] = packed_embedding(w=%1, scales=%2, indices=%0, group_size=32, bits=4, mode="mxfp4", dtype=f32)  ; error: an index cannot be f32; an integer is needed
}
