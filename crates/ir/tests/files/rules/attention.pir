; Norms, rotary positions, attention (semantics.md, section 7).

;;; norms
graph "norms"
  symbol T in 2..=64
  input %0 "x": bf16[1, T, 8]
  input %1 "w": bf16[8]
  input %2 "f": f32[8]
{
  %3: bf16[1, T, 8] = rms_norm(x=%0, weight=%1, eps=1e-5)
  %4: bf16[1, T, 8] = rms_norm(x=%0, eps=1e-6)
  %5: f32[1, T, 8] = rms_norm(x=%0, weight=%2, eps=1e-6)
  %6: bf16[1, T, 8] = layer_norm(x=%0, weight=%1, bias=%1, eps=1e-5)
  %7: bf16[1, T, 8] = layer_norm(x=%0, eps=1e-5)
  %8: f32[1, T, 8] = layer_norm(x=%0, weight=%1, bias=%2, eps=1e-5)
  %9: f32[1, T, 8] = layer_norm(x=%0, weight=%2, eps=1e-5)
  ; With a bias and no weight MLX keeps x's dtype.
  %10: bf16[1, T, 8] = layer_norm(x=%0, bias=%2, eps=1e-5)
}

;;; norms that do not fit
graph "norms that do not fit"
  input %0 "x": f32[2, 8]
  input %1 "n": i32[2, 8]
  input %2 "s": f32[]
  input %3 "w": f32[4]
  input %4 "m": f32[1, 8]
  input %5 "i": i32[8]
{
  %6: f32[2, 8] = rms_norm(x=%1, eps=1e-5)  ; error: x cannot be i32; a float is needed
  %7: f32[] = rms_norm(x=%2, eps=1e-5)  ; error: x has rank 0; 1 or more is needed
  %8: f32[2, 8] = rms_norm(x=%0, weight=%3, eps=1e-5)  ; error: features and their weights differ: 8 and 4
  %9: f32[2, 8] = rms_norm(x=%0, weight=%4, eps=1e-5)  ; error: a weight has rank 2; 1 is needed
  %10: f32[2, 8] = rms_norm(x=%0, weight=%5, eps=1e-5)  ; error: a weight cannot be i32; a float is needed
  %11: f32[2, 8] = layer_norm(x=%0, bias=%3, eps=1e-5)  ; error: features and their weights differ: 8 and 4
  %12: f32[2, 8] = layer_norm(x=%0, bias=%4, eps=1e-5)  ; error: a bias has rank 2; 1 is needed
  %13: f32[] = layer_norm(x=%2, eps=1e-5)  ; error: x has rank 0; 1 or more is needed
}

;;; rotary positions
graph "rotary positions"
  symbol T in 2..=64
  symbol pos in i32
  input %0 "x": f16[2, 4, T, 16]
  input %1 "flat": f32[2, T, 16]
  input %2 "pos": int(pos)
  input %3 "at": i64[1]
  input %4 "rows": i32[2]
  input %5 "freqs": f32[4]
{
  %6: f16[2, 4, T, 16] = rope(x=%0, dims=16, offset=int(%2))
  %7: f16[2, 4, T, 16] = rope(x=%0, dims=8, offset=%3, freqs=%5, traditional=true)
  %8: f16[2, 4, T, 16] = rope(x=%0, dims=16, offset=%4, base=10000.0, scale=0.25)
  %9: f32[2, T, 16] = rope(x=%1, dims=16, offset=int(%2))
}

;;; rotations that do not fit
graph "rotations that do not fit"
  input %0 "x": f32[2, 4, 3, 16]
  input %1 "n": i32[2, 4, 3, 16]
  input %2 "flat": f32[3, 16]
  input %3 "pos": int(5)
  input %4 "three": i64[3]
  input %5 "freqs": f32[5]
  input %6 "f": float
  input %7 "fl": f32[1]
{
  %8: f32[2, 4, 3, 16] = rope(x=%0, dims=18, offset=int(%3))  ; error: 18 rotated features of 16
  %9: f32[2, 4, 3, 16] = rope(x=%0, dims=7, offset=int(%3))  ; error: 7 rotated features of 16
  %10: f32[2, 4, 3, 16] = rope(x=%0, dims=0, offset=int(%3))  ; error: 0 rotated features of 16
  %11: f32[3, 16] = rope(x=%2, dims=16, offset=int(%3))  ; error: x has rank 2; 3 or more is needed
  %12: i32[2, 4, 3, 16] = rope(x=%1, dims=16, offset=int(%3))  ; error: x cannot be i32; a float is needed
  %13: f32[2, 4, 3, 16] = rope(x=%0, dims=16, offset=%4)  ; error: offsets and batch rows differ: 3 and 2
  %14: f32[2, 4, 3, 16] = rope(x=%0, dims=16, offset=%7)  ; error: an offset cannot be f32; an integer is needed
  %15: f32[2, 4, 3, 16] = rope(x=%0, dims=16, offset=int(%6))  ; error: %6 is not an integer
  %16: f32[2, 4, 3, 16] = rope(x=%0, dims=16, offset=int(%3), freqs=%5)  ; error: periods and half the rotated features differ: 5 and 8
}

;;; attention with grouped heads
graph "attention with grouped heads"
  symbol T in 2..=64
  symbol S in 0..=2048
  input %0 "q": f16[1, 8, T, 64]
  input %1 "k": f16[1, 2, S, 64]
  input %2 "v": f16[1, 2, S, 32]
  input %3 "mask": bool[1, 1, T, S]
  input %4 "bias": f32[T, S]
  input %5 "f": f32[1, 2, S, 64]
{
  %6: f16[1, 8, T, 32] = sdpa(q=%0, k=%1, v=%2, scale=0.125)
  %7: f16[1, 8, T, 32] = sdpa(q=%0, k=%1, v=%2, scale=0.125, causal=true)
  %8: f16[1, 8, T, 32] = sdpa(q=%0, k=%1, v=%2, scale=0.125, mask=%3)
  %9: f16[1, 8, T, 32] = sdpa(q=%0, k=%1, v=%2, scale=0.125, mask=%4)
  %10: f32[1, 8, T, 64] = sdpa(q=%0, k=%1, v=%5, scale=0.125)
}

;;; attention that does not fit
graph "attention that does not fit"
  input %0 "q": f32[1, 8, 3, 64]
  input %1 "k": f32[1, 2, 5, 64]
  input %2 "v": f32[1, 2, 5, 64]
  input %3 "three": f32[1, 3, 5, 64]
  input %4 "batch": f32[2, 2, 5, 64]
  input %5 "thin": f32[1, 2, 5, 32]
  input %6 "short": f32[1, 2, 4, 64]
  input %7 "flat": f32[2, 5, 64]
  input %8 "n": i32[1, 2, 5, 64]
  input %9 "mask": bool[3, 4]
  input %10 "good": bool[3, 5]
{
  %11: f32[1, 8, 3, 64] = sdpa(q=%0, k=%3, v=%3, scale=0.125)  ; error: 8 query heads over 3 key heads
  %12: f32[1, 8, 3, 64] = sdpa(q=%0, k=%4, v=%4, scale=0.125)  ; error: batches of q and k differ: 1 and 2
  %13: f32[1, 8, 3, 64] = sdpa(q=%0, k=%5, v=%2, scale=0.125)  ; error: features of q and k differ: 64 and 32
  %14: f32[1, 8, 3, 64] = sdpa(q=%0, k=%1, v=%6, scale=0.125)  ; error: batches, heads and lengths of k and v differ: 5 and 4
  %15: f32[1, 8, 3, 64] = sdpa(q=%0, k=%7, v=%2, scale=0.125)  ; error: k has rank 3; 4 is needed
  %16: f32[1, 8, 3, 64] = sdpa(q=%0, k=%1, v=%8, scale=0.125)  ; error: v cannot be i32; a float is needed
  %17: f32[1, 8, 3, 64] = sdpa(q=%0, k=%1, v=%2, scale=0.125, mask=%9)  ; error: a mask and the scores differ: [3, 4] and [1, 8, 3, 5]
  %18: f32[1, 8, 3, 64] = sdpa(q=%0, k=%1, v=%2, scale=0.125, mask=%10, causal=true)  ; error: a mask together with the causal one
}

;;; attention over the off-graph cache
graph "attention over the off-graph cache"
  symbol T in 2..=64
  input %0 "q": bf16[1, 8, T, 64]
  input %1 "k": bf16[1, 2, T, 64]
  input %2 "pos": i64[1]
  input %3 "n": int(4)
  input %4 "f": f32[1]
  input %5 "two": bf16[2, 2, T, 64]
{
  %6: bf16[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%2, layer_id=0, scale=0.125)
  %7: f32[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%2, layer_id=3, scale=0.125, out_dtype=f32)
  %8: bf16[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%2, scale=0.125)  ; error: layer_id and scale must be given
  %9: bf16[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%2, layer_id=0)  ; error: layer_id and scale must be given
  %10: bf16[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%3, layer_id=0, scale=0.125)  ; error: %3 is not a tensor
  %11: bf16[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%4, layer_id=0, scale=0.125)  ; error: a position cannot be f32; an integer is needed
  %12: i32[1, 8, T, 64] = update_and_attend(q=%0, k=%1, v=%1, position=%2, layer_id=0, scale=0.125, out_dtype=i32)  ; error: out_dtype cannot be i32; a float is needed
  %13: bf16[1, 8, T, 64] = update_and_attend(q=%0, k=%5, v=%5, position=%2, layer_id=0, scale=0.125)  ; error: batches of q and k differ: 1 and 2
}
