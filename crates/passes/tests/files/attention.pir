; Attention that models spell out.

;;; scaled scores, a mask, and heads that were repeated
; data "root": 2
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 4, T, 4]
  input %1 "k": f32[1, 2, T, 4]
  input %2 "v": f32[1, 2, T, 4]
  input %3 "mask": f32[1, 1, T, T]
  constant %4 "root": f32[]
{
  %5: int(T) = sym_size(a=%0, dim=2)
  %6: f32[1, 2, 1, T, 4] = expand_dims(x=%1, axis=2)
  %7: f32[1, 2, 2, T, 4] = broadcast_to(x=%6, shape=[1, 2, 2, %5, 4])
  %8: f32[1, 4, T, 4] = reshape(x=%7, shape=[1, 4, %5, 4])
  %9: f32[1, 2, 1, T, 4] = expand_dims(x=%2, axis=2)
  %10: f32[1, 2, 2, T, 4] = broadcast_to(x=%9, shape=[1, 2, 2, %5, 4])
  %11: f32[1, 4, T, 4] = reshape(x=%10, shape=[1, 4, %5, 4])
  %12: f32[1, 4, 4, T] = transpose(x=%8, perm=[0, 1, 3, 2])
  %13: f32[1, 4, T, T] = addmm(mat1=%0, mat2=%12)
  %14: f32[1, 4, T, T] = divide(a=%13, b=%4)
  %15: f32[1, 4, T, T] = add(a=%14, b=%3)
  %16: f32[1, 4, T, T] = softmax(x=%15, axis=-1)
  %17: f32[1, 4, T, 4] = addmm(mat1=%16, mat2=%11)
}
output %17 "y": f32[1, 4, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 4, T, 4]
  input %1 "k": f32[1, 2, T, 4]
  input %2 "v": f32[1, 2, T, 4]
  input %3 "mask": f32[1, 1, T, T]
{
  %4: f32[1, 4, T, 4] = sdpa(q=%0, k=%1, v=%2, scale=0.5, mask=%3)
}
output %4 "y": f32[1, 4, T, 4]

;;; in bf16 with a softmax in f32, queries scaled before
; data "scale": 0.5
graph "g"
  symbol T in 2..=8
  input %0 "q": bf16[1, 2, T, 4]
  input %1 "k": bf16[1, 2, T, 4]
  input %2 "v": bf16[1, 2, T, 4]
  constant %3 "scale": bf16[]
{
  %4: bf16[1, 2, T, 4] = multiply(a=%0, b=%3)
  %5: bf16[1, 2, 4, T] = transpose(x=%1, perm=[0, 1, 3, 2])
  %6: bf16[1, 2, T, T] = addmm(mat1=%4, mat2=%5)
  %7: f32[1, 2, T, T] = as_type(x=%6, scalar_type=f32)
  %8: f32[1, 2, T, T] = softmax(x=%7, axis=3)
  %9: bf16[1, 2, T, T] = as_type(x=%8, scalar_type=bf16)
  %10: bf16[1, 2, T, 4] = addmm(mat1=%9, mat2=%2)
}
output %10 "y": bf16[1, 2, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "q": bf16[1, 2, T, 4]
  input %1 "k": bf16[1, 2, T, 4]
  input %2 "v": bf16[1, 2, T, 4]
{
  %3: bf16[1, 2, T, 4] = sdpa(q=%0, k=%1, v=%2, scale=0.5)
}
output %3 "y": bf16[1, 2, T, 4]

;;; repeated heads before the op
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 4, T, 4]
  input %1 "k": f32[1, 2, T, 4]
  input %2 "v": f32[1, 2, T, 4]
{
  %3: int(T) = sym_size(a=%0, dim=2)
  %4: f32[1, 2, 1, T, 4] = expand_dims(x=%1, axis=2)
  %5: f32[1, 2, 2, T, 4] = broadcast_to(x=%4, shape=[1, 2, 2, %3, 4])
  %6: f32[1, 4, T, 4] = reshape(x=%5, shape=[1, 4, %3, 4])
  %7: f32[1, 2, 1, T, 4] = expand_dims(x=%2, axis=2)
  %8: f32[1, 2, 2, T, 4] = broadcast_to(x=%7, shape=[1, 2, 2, %3, 4])
  %9: f32[1, 4, T, 4] = reshape(x=%8, shape=[1, 4, %3, 4])
  %10: f32[1, 4, T, 4] = sdpa(q=%0, k=%6, v=%9, scale=0.5, causal=true)
}
output %10 "y": f32[1, 4, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 4, T, 4]
  input %1 "k": f32[1, 2, T, 4]
  input %2 "v": f32[1, 2, T, 4]
{
  %3: f32[1, 4, T, 4] = sdpa(q=%0, k=%1, v=%2, scale=0.5, causal=true)
}
output %3 "y": f32[1, 4, T, 4]

;;; a scale outside the mask would scale it too, and a softmax over queries is no attention
; data "scale": 0.5
; left: what the softmax is of is no product of queries and keys
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 2, T, 4]
  input %1 "k": f32[1, 2, T, 4]
  input %2 "v": f32[1, 2, T, 4]
  input %3 "mask": f32[1, 1, T, T]
  constant %4 "scale": f32[]
{
  %5: f32[1, 2, 4, T] = transpose(x=%1, perm=[0, 1, 3, 2])
  %6: f32[1, 2, T, T] = addmm(mat1=%0, mat2=%5)
  %7: f32[1, 2, T, T] = add(a=%6, b=%3)
  %8: f32[1, 2, T, T] = multiply(a=%7, b=%4)
  %9: f32[1, 2, T, T] = softmax(x=%8, axis=3)
  %10: f32[1, 2, T, 4] = addmm(mat1=%9, mat2=%2)
  %11: f32[1, 2, T, T] = softmax(x=%6, axis=2)
  %12: f32[1, 2, T, 4] = addmm(mat1=%11, mat2=%2)
}
output %10 "y": f32[1, 2, T, 4]
output %12 "z": f32[1, 2, T, 4]
; stays

;;; keys that were turned twice at once
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 2, T, 4]
  input %1 "k": f32[1, T, 2, 4]
  input %2 "v": f32[1, 2, T, 4]
{
  %3: f32[1, 2, 4, T] = transpose(x=%1, perm=[0, 2, 3, 1])
  %4: f32[1, 2, T, T] = addmm(mat1=%0, mat2=%3)
  %5: f32[1, 2, T, T] = softmax(x=%4, axis=3)
  %6: f32[1, 2, T, 4] = addmm(mat1=%5, mat2=%2)
}
output %6 "y": f32[1, 2, T, 4]
; becomes
graph "g"
  symbol T in 2..=8
  input %0 "q": f32[1, 2, T, 4]
  input %1 "k": f32[1, T, 2, 4]
  input %2 "v": f32[1, 2, T, 4]
{
  %3: f32[1, 2, T, 4] = transpose(x=%1, perm=[0, 2, 1, 3])
  %4: f32[1, 2, T, 4] = sdpa(q=%0, k=%3, v=%2, scale=1.0)
}
output %4 "y": f32[1, 2, T, 4]
