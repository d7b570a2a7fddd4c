; Constants that are computed now.

;;; one plus a weight, conversions, shapes, fills and ranges
; data "w": 0.5 -0.25
; data "one": 1
; data "s": 3.14159
graph "g"
  input %0 "x": f32[2]
  constant %1 "w": f32[2]
  constant %2 "one": f32[]
  constant %3 "s": f32[]
{
  %4: f32[2] = add(a=%1, b=%2)
  %5: f32[2] = multiply(a=%0, b=%4)
  %6: bf16[] = as_type(x=%3, scalar_type=bf16)
  %7: bf16[1] = expand_dims(x=%6, axis=0)
  %8: i64[3] = arange(start=4, stop=10, step=2, scalar_type=i64)
  %9: f32[1] = full(shape=[1], v=-inf, scalar_type=f32)
  %10: f32[2] = maximum(a=%5, b=%9)
}
output %10 "y": f32[2]
output %7 "s": bf16[1]
output %8 "r": i64[3]

; becomes
graph "g"
  input %0 "x": f32[2]
  constant %3 "w_folded": f32[2]
  constant %4 "s_folded_folded": bf16[1]
  constant %5 "_range_folded": i64[3]
  constant %6 "_full_folded": f32[1]
{
  %1: f32[2] = multiply(a=%0, b=%3)
  %2: f32[2] = maximum(a=%1, b=%6)
}
output %2 "y": f32[2]
output %4 "s": bf16[1]
output %5 "r": i64[3]

;;; data that is not at hand, a transposed weight, a range that is not known
; data "v": 1 2 3 4
graph "g"
  symbol T in 2..=8
  input %0 "n": int(T)
  constant %1 "w": f32[2]
  constant %2 "v": f32[2, 2]
{
  %3: f32[2] = neg(x=%1)
  %4: f32[2, 2] = transpose(x=%2, perm=[1, 0])
  %5: i64[T] = arange(start=0, stop=%0, step=1, scalar_type=i64)
}
output %3 "a": f32[2]
output %4 "b": f32[2, 2]
output %5 "c": i64[T]

; stays

;;; an integer sum that does not fit
; data "most": 9007199254740992
graph "g"
  constant %0 "most": i64[]
{
  %1: i64[] = multiply(a=%0, b=%0)
}
output %1 "a": i64[]
; stays

