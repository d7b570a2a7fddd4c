; Nodes that give what they were given.

;;; casts, shapes, slices, contiguous
graph "g"
  symbol T in 2..=8
  input %0 "x": f32[1, T, 4]
{
  %1: f32[1, T, 4] = as_type(x=%0, scalar_type=f32)
  %2: f32[1, T, 4] = contiguous(x=%1)
  %3: f32[1, T, 4] = slice(x=%2, axis=2, start=0, stop=4)
  %4: f32[1, T, 4] = slice(x=%3, axis=1, start=0, stop=9223372036854775807)
  %5: int(T) = sym_size(a=%0, dim=1)
  %6: f32[1, T, 4] = slice(x=%4, axis=1, start=0, stop=%5)
  %7: f32[1, T, 4] = transpose(x=%6, perm=[0, 1, -1])
  %8: f32[1, T, 4] = reshape(x=%7, shape=[1, %5, 4])
  %9: f32[1, T, 4] = broadcast_to(x=%8, shape=[1, %5, 4])
  %10: f32[1, T, 4] = exp(x=%9)
}
output %10 "y": f32[1, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "x": f32[1, T, 4]
{
  %1: f32[1, T, 4] = exp(x=%0)
}
output %1 "y": f32[1, T, 4]

;;; sums with zero, products with one
; data "zero": 0
; data "one": 1
graph "g"
  input %0 "x": f32[2]
  constant %1 "zero": f32[]
  constant %2 "one": f32[2]
{
  %3: f32[2] = add(a=%1, b=%0)
  %4: f32[2] = subtract(a=%3, b=%1)
  %5: f32[2] = multiply(a=%4, b=%2)
  %6: f32[2] = divide(a=%5, b=%2)
  %7: f32[2] = full(shape=[2], v=1.0, scalar_type=f32)
  %8: f32[2] = power(a=%6, b=%7)
  %9: f32[2] = exp(x=%8)
}
output %9 "y": f32[2]

; becomes
graph "g"
  input %0 "x": f32[2]
{
  %1: f32[2] = exp(x=%0)
}
output %1 "y": f32[2]

;;; what was wrapped and is picked
graph "g"
  input %0 "x": i64[3]
  input %1 "y": i64[]
{
  %2: i64[3, 1] = expand_dims(x=%0, axis=1)
  %3: i64[3] = take(x=%2, index=0, axis=1)
  %4: i64[1] = reshape(x=%1, shape=[1])
  %5: i64[] = take(x=%4, index=-1, axis=0)
  %6: i64[3] = add(a=%3, b=%5)
}
output %6 "z": i64[3]

; becomes
graph "g"
  input %0 "x": i64[3]
  input %1 "y": i64[]
{
  %2: i64[3] = add(a=%0, b=%1)
}
output %2 "z": i64[3]

;;; a branch is entered
graph "g"
  input %0 "x": f32[2]
  input %1 "c": int(1)
{
  %2: f32[2] = if(cond=%1) then {
    %3: f32[2] = contiguous(x=%0)
    yield %3
  } else {
    %4: f32[2] = exp(x=%0)
    yield %4
  }
}
output %2 "y": f32[2]

; becomes
graph "g"
  input %0 "x": f32[2]
  input %1 "c": int(1)
{
  %2: f32[2] = if(cond=%1) then {
    yield %0
  } else {
    %3: f32[2] = exp(x=%0)
    yield %3
  }
}
output %2 "y": f32[2]

;;; zero minus x is not x, one over x is not x, and a sum may widen
; data "zero": 0
; data "zeros": 0
; data "one": 1
graph "g"
  input %0 "x": f32[2]
  constant %1 "zero": f32[]
  constant %2 "one": f32[]
  constant %3 "zeros": f32[3, 2]
{
  %4: f32[2] = subtract(a=%1, b=%0)
  %5: f32[2] = divide(a=%2, b=%4)
  %6: f32[3, 2] = add(a=%5, b=%3)
}
output %6 "y": f32[3, 2]

; stays

;;; a slice that may cut
graph "g"
  symbol T in 2..=8
  symbol s1 in 0..=7
  input %0 "x": f32[T]
  input %1 "y": f32[4]
{
  %2: f32[s1] = slice(x=%0, axis=0, start=0, stop=7)
  %3: f32[3] = slice(x=%1, axis=0, start=0, stop=-1)
  %4: i32[2, 1] = full(shape=[2, 1], v=0.0, scalar_type=i32)
  %5: i32[1] = take(x=%4, index=0, axis=0)
}
output %2 "a": f32[s1]
output %3 "b": f32[3]
output %5 "c": i32[1]
; stays


;;; a squeeze of a size that may turn out to be 1
graph "g"
  symbol T in 0..=8
  input %0 "x": f32[T, 4]
{
  %1: f32[T, 4] = squeeze(x=%0, dims=[0])
}
output %1 "y": f32[T, 4]
; stays
