; Quantised weights (semantics.md, section 8): packed words, groups, and what they stand for.

;;; affine weights in every width
graph "affine weights in every width"
  input %0 "w2": u32[4, 8]
  input %1 "w3": u32[4, 12]
  input %2 "w4": u32[4, 16]
  input %3 "w5": u32[4, 20]
  input %4 "w6": u32[4, 24]
  input %5 "w8": u32[4, 32]
  input %6 "s": bf16[4, 4]
  input %7 "s16": f32[4, 8]
  input %8 "b": f16[4, 4]
{
  %9: bf16[4, 128] = dequantize(w=%0, scales=%6, biases=%6, group_size=32, bits=2, mode="affine")
  %10: bf16[4, 128] = dequantize(w=%1, scales=%6, biases=%6, group_size=32, bits=3, mode="affine")
  %11: bf16[4, 128] = dequantize(w=%2, scales=%6, biases=%6, group_size=32, bits=4, mode="affine")
  %12: bf16[4, 128] = dequantize(w=%3, scales=%6, biases=%6, group_size=32, bits=5, mode="affine")
  %13: bf16[4, 128] = dequantize(w=%4, scales=%6, biases=%6, group_size=32, bits=6, mode="affine")
  %14: bf16[4, 128] = dequantize(w=%5, scales=%6, biases=%6, group_size=32, bits=8, mode="affine")
  %15: f32[4, 128] = dequantize(w=%2, scales=%7, biases=%7, group_size=16, bits=4, mode="affine")
  %16: f32[4, 128] = dequantize(w=%2, scales=%6, biases=%8, group_size=32, bits=4, mode="affine")
  %17: f16[4, 128] = dequantize(w=%2, scales=%6, biases=%6, group_size=32, bits=4, mode="affine", dtype=f16)
}

;;; float formats
graph "float formats"
  input %0 "w4": u32[4, 16]
  input %1 "w8": u32[4, 32]
  input %2 "s32": u8[4, 4]
  input %3 "s16": u8[4, 8]
  input %4 "global": f32[]
  input %5 "x": f16[2, 128]
{
  %6: bf16[4, 128] = dequantize(w=%0, scales=%2, group_size=32, bits=4, mode="mxfp4")
  %7: bf16[4, 128] = dequantize(w=%0, scales=%3, group_size=16, bits=4, mode="nvfp4")
  %8: f32[4, 128] = dequantize(w=%0, scales=%3, group_size=16, bits=4, mode="nvfp4", global_scale=%4, dtype=f32)
  %9: bf16[4, 128] = dequantize(w=%1, scales=%2, group_size=32, bits=8, mode="mxfp8")
  %10: f16[2, 4] = quantized_matmul(x=%5, w=%0, scales=%2, group_size=32, bits=4, mode="mxfp4")
  %11: f16[2, 4] = quantized_matmul(x=%5, w=%0, scales=%3, group_size=16, bits=4, mode="nvfp4")
}

;;; embeddings pick rows, then dequantise
graph "embeddings pick rows, then dequantise"
  symbol T in 2..=64
  input %0 "rows": u32[1, T, 16]
  input %1 "s": f16[1, T, 2]
{
  %2: f16[1, T, 128] = dequantize(w=%0, scales=%1, biases=%1, group_size=64, bits=4, mode="affine")
}

;;; products with quantised weights
graph "products with quantised weights"
  symbol T in 2..=64
  input %0 "x": f16[1, T, 128]
  input %1 "other": f32[1, T, 4]
  input %2 "w": u32[4, 16]
  input %3 "s": f16[4, 2]
  input %4 "sb": bf16[4, 2]
{
  %5: f16[1, T, 4] = quantized_matmul(x=%0, w=%2, scales=%3, biases=%3, group_size=64, bits=4, mode="affine")
  %6: f32[1, T, 4] = quantized_matmul(x=%0, w=%2, scales=%4, biases=%4, group_size=64, bits=4, mode="affine")
  %7: f32[1, T, 128] = quantized_matmul(x=%1, w=%2, scales=%3, biases=%3, group_size=64, bits=4, mode="affine", transpose=false)
}

;;; products with experts' weights
graph "products with experts' weights"
  symbol T in 2..=64
  input %0 "x": f16[T, 1, 1, 128]
  input %1 "w": u32[8, 4, 16]
  input %2 "s": f16[8, 4, 2]
  input %3 "rhs": u32[T, 2]
  input %4 "lhs": i64[T, 1]
  input %5 "flag": int(T)
{
  %6: f16[T, 2, 1, 4] = gather_qmm(x=%0, w=%1, scales=%2, mode="affine", biases=%2, rhs_indices=%3, group_size=64, bits=4)
  %7: f16[T, 2, 1, 4] = gather_qmm(x=%0, w=%1, scales=%2, mode="affine", biases=%2, lhs_indices=%4, rhs_indices=%3, group_size=64, bits=4, sorted_indices=true, sorted_indices_flag=%5)
  %8: f16[T, 8, 1, 4] = gather_qmm(x=%0, w=%1, scales=%2, mode="affine", biases=%2, group_size=64, bits=4)
}

;;; forms that do not exist
graph "forms that do not exist"
  input %0 "w": u32[4, 16]
  input %1 "s": f16[4, 2]
  input %2 "u": u8[4, 4]
  input %3 "i": i32[4, 16]
  input %4 "global": f32[]
  input %5 "x": f16[2, 128]
{
  %6: f16[4, 128] = dequantize(w=%0, scales=%1, biases=%1, group_size=64, bits=4, mode="gguf")  ; error: there is no quantisation mode "gguf"
  %7: f16[4, 128] = dequantize(w=%0, scales=%1, biases=%1, group_size=64, bits=7, mode="affine")  ; error: mode affine does not come in 7 bits with groups of 64
  %8: f16[4, 128] = dequantize(w=%0, scales=%1, biases=%1, group_size=48, bits=4, mode="affine")  ; error: mode affine does not come in 4 bits with groups of 48
  %9: bf16[4, 128] = dequantize(w=%0, scales=%2, group_size=64, bits=4, mode="mxfp4")  ; error: mode mxfp4 does not come in 4 bits with groups of 64
  %10: f16[4, 128] = dequantize(w=%3, scales=%1, biases=%1, group_size=64, bits=4, mode="affine")  ; error: packed weights cannot be i32; u32 is needed
  %11: f16[4, 128] = dequantize(w=%0, scales=%1, group_size=64, bits=4, mode="affine")  ; error: affine weights need biases
  %12: bf16[4, 128] = dequantize(w=%0, scales=%2, biases=%1, group_size=32, bits=4, mode="mxfp4")  ; error: only affine weights have biases
  %13: bf16[4, 64] = dequantize(w=%0, scales=%1, group_size=32, bits=4, mode="mxfp4")  ; error: scales cannot be f16; u8 is needed
  %14: f16[4, 128] = dequantize(w=%0, scales=%2, biases=%2, group_size=32, bits=4, mode="affine")  ; error: scales cannot be u8; a float is needed
  %15: f16[4, 64] = dequantize(w=%0, scales=%1, biases=%1, group_size=32, bits=4, mode="affine")  ; error: bits in a packed row and in its groups differ: 512 and 256
  %16: bf16[4, 128] = dequantize(w=%0, scales=%2, group_size=32, bits=4, mode="mxfp4", global_scale=%4)  ; error: mode mxfp4 has no global scale
  %17: i32[4, 128] = dequantize(w=%0, scales=%1, biases=%1, group_size=64, bits=4, mode="affine", dtype=i32)  ; error: the result cannot be i32; a float is needed
  %18: f16[2, 4] = quantized_matmul(x=%3, w=%0, scales=%1, biases=%1, group_size=64, bits=4, mode="affine")  ; error: x cannot be i32; a float is needed
  %19: f16[2, 128] = quantized_matmul(x=%5, w=%0, scales=%1, biases=%1, group_size=64, bits=4, mode="affine", transpose=false)  ; error: inner sizes differ: 128 and 4
  %20: f16[2, 4] = gather_qmm(x=%5, w=%0, scales=%1, mode="affine", biases=%1, rhs_indices=%1, group_size=64, bits=4)  ; error: an index cannot be f16; an integer is needed
  %21: f16[2, 4] = gather_qmm(x=%5, w=%0, scales=%1, mode="affine", biases=%1, transpose=false, group_size=64, bits=4)  ; error: inner sizes differ: 128 and 4
}

;;; rows that do not fit
graph "rows that do not fit"
  input %0 "w": u32[4, 16]
  input %1 "s": f16[3, 2]
  input %2 "b": f16[4, 2]
  input %3 "v": u32[16]
  input %4 "sv": f16[2]
  input %5 "x": f16[2, 128]
{
  %6: f16[4, 128] = dequantize(w=%0, scales=%1, biases=%1, group_size=64, bits=4, mode="affine")  ; error: rows of weights and scales differ: 4 and 3
  %7: f16[4, 128] = dequantize(w=%0, scales=%2, biases=%1, group_size=64, bits=4, mode="affine")  ; error: scales and biases differ: 4 and 3
  %8: f16[2, 4] = quantized_matmul(x=%5, w=%3, scales=%4, biases=%4, group_size=64, bits=4, mode="affine")  ; error: packed weights has rank 1; 2 or more is needed
}
