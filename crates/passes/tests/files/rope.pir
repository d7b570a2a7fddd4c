; Rotary position embedding in the form of Hugging Face.

;;; positions that count on from a value
; data "inv_freq": 1 0.1
graph "g"
  symbol T in 2..=8
  symbol n in 0..=100
  input %0 "x": f32[1, 2, T, 4]
  input %1 "start": int(n)
  constant %2 "inv_freq": f32[2]
{
  %3: int(T) = sym_size(a=%0, dim=2)
  %4: i64[T] = arange(start=0, stop=%3, step=1, scalar_type=i64)
  %5: i64[] = full(shape=[], v=%1, scalar_type=i64)
  %6: i64[T] = add(a=%4, b=%5)
  %7: i64[1, T, 1] = reshape(x=%6, shape=[1, -1, 1])
  %8: f32[1, T, 1] = as_type(x=%7, scalar_type=f32)
  %9: f32[1, T, 2] = multiply(a=%8, b=%2)
  %10: f32[1, T, 4] = concatenate(tensors=[%9, %9], axis=-1)
  %11: f32[1, T, 4] = cos(x=%10)
  %12: f32[1, T, 4] = sin(x=%10)
  %13: f32[1, 1, T, 4] = expand_dims(x=%11, axis=1)
  %14: f32[1, 1, T, 4] = expand_dims(x=%12, axis=1)
  %15: f32[1, 2, T, 4] = multiply(a=%0, b=%13)
  %16: f32[1, 2, T, 2] = slice(x=%0, axis=3, start=0, stop=2)
  %17: f32[1, 2, T, 2] = slice(x=%0, axis=3, start=2, stop=9223372036854775807)
  %18: f32[1, 2, T, 2] = neg(x=%17)
  %19: f32[1, 2, T, 4] = concatenate(tensors=[%18, %16], axis=3)
  %20: f32[1, 2, T, 4] = multiply(a=%19, b=%14)
  %21: f32[1, 2, T, 4] = add(a=%15, b=%20)
}
output %21 "y": f32[1, 2, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  symbol n in 0..=100
  input %0 "x": f32[1, 2, T, 4]
  input %1 "start": int(n)
  constant %2 "inv_freq_periods": f32[2]
{
  %3: f32[1, 2, T, 4] = rope(x=%0, dims=4, offset=int(%1), freqs=%2, base=10000.0)
}
output %3 "y": f32[1, 2, T, 4]

;;; positions as a product of matrices, from zero, in bf16
; data "inv_freq": 1 0.1
graph "g"
  symbol T in 2..=8
  input %0 "x": bf16[1, 2, T, 4]
  constant %1 "inv_freq": f32[1, 2, 1]
{
  %2: int(T) = sym_size(a=%0, dim=2)
  %3: i64[T] = arange(start=0, stop=%2, step=1, scalar_type=i64)
  %4: f32[T] = as_type(x=%3, scalar_type=f32)
  %5: f32[1, 1, T] = reshape(x=%4, shape=[1, 1, -1])
  %6: f32[1, 2, T] = addmm(mat1=%1, mat2=%5)
  %7: f32[1, T, 2] = transpose(x=%6, perm=[0, 2, 1])
  %8: f32[1, T, 4] = concatenate(tensors=[%7, %7], axis=2)
  %9: f32[1, T, 4] = cos(x=%8)
  %10: f32[1, T, 4] = sin(x=%8)
  %11: bf16[1, T, 4] = as_type(x=%9, scalar_type=bf16)
  %12: bf16[1, T, 4] = as_type(x=%10, scalar_type=bf16)
  %13: bf16[1, 1, T, 4] = expand_dims(x=%11, axis=1)
  %14: bf16[1, 1, T, 4] = expand_dims(x=%12, axis=1)
  %15: bf16[1, 2, T, 4] = multiply(a=%0, b=%13)
  %16: bf16[1, 2, T, 2] = slice(x=%0, axis=3, start=0, stop=2)
  %17: bf16[1, 2, T, 2] = slice(x=%0, axis=3, start=2, stop=4)
  %18: bf16[1, 2, T, 2] = neg(x=%17)
  %19: bf16[1, 2, T, 4] = concatenate(tensors=[%18, %16], axis=3)
  %20: bf16[1, 2, T, 4] = multiply(a=%19, b=%14)
  %21: bf16[1, 2, T, 4] = add(a=%15, b=%20)
}
output %21 "y": bf16[1, 2, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "x": bf16[1, 2, T, 4]
  constant %1 "inv_freq_periods": f32[2]
  constant %2 "_rope_zero": i32[]
{
  %3: bf16[1, 2, T, 4] = rope(x=%0, dims=4, offset=%2, freqs=%1, base=10000.0)
}
output %3 "y": bf16[1, 2, T, 4]

;;; positions that the caller gives
; data "inv_freq": 1 0.1
; left: its positions are not a range by construction
graph "g"
  symbol T in 2..=8
  input %0 "x": f32[1, 2, T, 4]
  input %1 "positions": i64[1, T, 1]
  constant %2 "inv_freq": f32[2]
{
  %3: f32[1, T, 1] = as_type(x=%1, scalar_type=f32)
  %4: f32[1, T, 2] = multiply(a=%3, b=%2)
  %5: f32[1, T, 4] = concatenate(tensors=[%4, %4], axis=2)
  %6: f32[1, T, 4] = cos(x=%5)
  %7: f32[1, T, 4] = sin(x=%5)
  %8: f32[1, 1, T, 4] = expand_dims(x=%6, axis=1)
  %9: f32[1, 1, T, 4] = expand_dims(x=%7, axis=1)
  %10: f32[1, 2, T, 4] = multiply(a=%0, b=%8)
  %11: f32[1, 2, T, 2] = slice(x=%0, axis=3, start=0, stop=2)
  %12: f32[1, 2, T, 2] = slice(x=%0, axis=3, start=2, stop=4)
  %13: f32[1, 2, T, 2] = neg(x=%12)
  %14: f32[1, 2, T, 4] = concatenate(tensors=[%13, %11], axis=3)
  %15: f32[1, 2, T, 4] = multiply(a=%14, b=%9)
  %16: f32[1, 2, T, 4] = add(a=%10, b=%15)
}
output %16 "y": f32[1, 2, T, 4]

; stays

;;; cosines that are scaled, as long contexts do
; data "inv_freq": 1 0.1
; data "scale": 1.2
; left: its factors are not the cosine and sine of the same angles, one row a position
graph "g"
  symbol T in 2..=8
  input %0 "x": f32[1, 2, T, 4]
  constant %1 "inv_freq": f32[2]
  constant %2 "scale": f32[]
{
  %3: int(T) = sym_size(a=%0, dim=2)
  %4: i64[T] = arange(start=0, stop=%3, step=1, scalar_type=i64)
  %5: f32[T] = as_type(x=%4, scalar_type=f32)
  %6: f32[T, 1] = expand_dims(x=%5, axis=1)
  %7: f32[T, 2] = multiply(a=%6, b=%1)
  %8: f32[T, 4] = concatenate(tensors=[%7, %7], axis=1)
  %9: f32[T, 4] = cos(x=%8)
  %10: f32[T, 4] = multiply(a=%9, b=%2)
  %11: f32[T, 4] = sin(x=%8)
  %12: f32[T, 4] = multiply(a=%11, b=%2)
  %13: f32[1, 2, T, 4] = multiply(a=%0, b=%10)
  %14: f32[1, 2, T, 2] = slice(x=%0, axis=3, start=0, stop=2)
  %15: f32[1, 2, T, 2] = slice(x=%0, axis=3, start=2, stop=4)
  %16: f32[1, 2, T, 2] = neg(x=%15)
  %17: f32[1, 2, T, 4] = concatenate(tensors=[%16, %14], axis=3)
  %18: f32[1, 2, T, 4] = multiply(a=%17, b=%12)
  %19: f32[1, 2, T, 4] = add(a=%13, b=%18)
}
output %19 "y": f32[1, 2, T, 4]
; stays

