; Chains of views and conversions.

;;; transposes compose, and two that undo each other are none
graph "g"
  input %0 "x": f32[2, 3, 4]
{
  %1: f32[3, 4, 2] = transpose(x=%0, perm=[1, 2, 0])
  %2: f32[4, 2, 3] = transpose(x=%1, perm=[1, 2, 0])
  %3: f32[4, 3, 2] = transpose(x=%2, perm=[0, 2, 1])
  %4: f32[4, 2, 3] = transpose(x=%3, perm=[0, 2, 1])
}
output %2 "a": f32[4, 2, 3]
output %4 "b": f32[4, 2, 3]

; becomes
graph "g"
  input %0 "x": f32[2, 3, 4]
{
  %1: f32[4, 2, 3] = transpose(x=%0, perm=[2, 0, 1])
  %2: f32[4, 2, 3] = transpose(x=%0, perm=[2, 0, 1])
}
output %1 "a": f32[4, 2, 3]
output %2 "b": f32[4, 2, 3]

;;; reshapes and axes of size 1
graph "g"
  symbol T in 2..=8
  input %0 "x": i64[T]
  input %1 "y": f32[2, 3]
{
  %2: i64[1, T] = expand_dims(x=%0, axis=0)
  %3: i64[1, T, 1] = expand_dims(x=%2, axis=2)
  %4: f32[6] = reshape(x=%1, shape=[6])
  %5: f32[3, 2] = reshape(x=%4, shape=[3, 2])
  %6: f32[1, 2, 3] = expand_dims(x=%1, axis=0)
  %7: f32[2, 3] = squeeze(x=%6, dims=[0])
  %8: f32[2, 3] = exp(x=%7)
}
output %3 "a": i64[1, T, 1]
output %5 "b": f32[3, 2]
output %8 "c": f32[2, 3]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "x": i64[T]
  input %1 "y": f32[2, 3]
{
  %3: i64[1, T, 1] = reshape(x=%0, shape=[1, -1, 1])
  %4: f32[3, 2] = reshape(x=%1, shape=[3, 2])
  %2: f32[2, 3] = exp(x=%1)
}
output %3 "a": i64[1, T, 1]
output %4 "b": f32[3, 2]
output %2 "c": f32[2, 3]

;;; conversions through a wider dtype
graph "g"
  input %0 "x": bf16[2]
  input %1 "c": bool[2]
{
  %2: f32[2] = as_type(x=%0, scalar_type=f32)
  %3: bf16[2] = as_type(x=%2, scalar_type=bf16)
  %4: bf16[2] = exp(x=%3)
  %5: i64[2] = as_type(x=%1, scalar_type=i64)
  %6: f32[2] = as_type(x=%5, scalar_type=f32)
}
output %4 "y": bf16[2]
output %6 "z": f32[2]

; becomes
graph "g"
  input %0 "x": bf16[2]
  input %1 "c": bool[2]
{
  %2: bf16[2] = exp(x=%0)
  %3: f32[2] = as_type(x=%1, scalar_type=f32)
}
output %2 "y": bf16[2]
output %3 "z": f32[2]

;;; a conversion that loses, a middle with another use, and two open sizes
graph "g"
  symbol A in 2..=8
  symbol B in 2..=8
  input %0 "x": f32[2]
  input %1 "y": f32[2, 3]
  input %2 "z": f32[A, B]
{
  %3: bf16[2] = as_type(x=%0, scalar_type=bf16)
  %4: f32[2] = as_type(x=%3, scalar_type=f32)
  %5: f32[6] = reshape(x=%1, shape=[6])
  %6: f32[3, 2] = reshape(x=%5, shape=[3, 2])
  %7: f32[6] = exp(x=%5)
  %8: f32[1, A, B] = expand_dims(x=%2, axis=0)
  %9: f32[1, A, B, 1] = expand_dims(x=%8, axis=3)
}
output %4 "a": f32[2]
output %6 "b": f32[3, 2]
output %7 "c": f32[6]
output %9 "d": f32[1, A, B, 1]
; stays

