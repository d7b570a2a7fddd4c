; What is computed twice is computed once.

;;; masks and positions, once for two layers
graph "g"
  symbol T in 2..=8
  input %0 "positions": i64[T]
  input %1 "x": f32[T, T]
  constant %2 "zero": i64[]
{
  %3: i64[] = take(x=%0, index=0, axis=0)
  %4: i64[1] = reshape(x=%3, shape=[1])
  %5: bool[T] = greater_equal(a=%0, b=%4)
  %6: f32[T, T] = where(condition=%5, x=%1, y=%2)
  %7: i64[] = take(x=%0, index=0, axis=0)
  %8: i64[1] = reshape(x=%7, shape=[1])
  %9: bool[T] = greater_equal(a=%0, b=%8)
  %10: f32[T, T] = where(condition=%9, x=%6, y=%2)
}
output %10 "y": f32[T, T]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "positions": i64[T]
  input %1 "x": f32[T, T]
  constant %2 "zero": i64[]
{
  %3: i64[] = take(x=%0, index=0, axis=0)
  %4: i64[1] = reshape(x=%3, shape=[1])
  %5: bool[T] = greater_equal(a=%0, b=%4)
  %6: f32[T, T] = where(condition=%5, x=%1, y=%2)
  %7: f32[T, T] = where(condition=%5, x=%6, y=%2)
}
output %7 "y": f32[T, T]

;;; either order of a sum, outputs and state
graph "g"
  input %0 "a": f32[2]
  input %1 "b": f32[2]
  buffer %2 "kept": f32[2] -> %4
{
  %3: f32[2] = add(a=%0, b=%1)
  %4: f32[2] = add(a=%1, b=%0)
}
output %3 "x": f32[2]
output %4 "y": f32[2]

; becomes
graph "g"
  input %0 "a": f32[2]
  input %1 "b": f32[2]
  buffer %2 "kept": f32[2] -> %3
{
  %3: f32[2] = add(a=%0, b=%1)
}
output %3 "x": f32[2]
output %3 "y": f32[2]

;;; a branch uses what is around it, and gives nothing to what follows
graph "g"
  input %0 "x": f32[2]
  input %1 "c": int(1)
{
  %2: f32[2] = exp(x=%0)
  %3: f32[2] = if(cond=%1) then {
    %4: f32[2] = exp(x=%0)
    %5: f32[2] = sin(x=%4)
    yield %5
  } else {
    %6: f32[2] = sin(x=%0)
    yield %6
  }
  %7: f32[2] = sin(x=%0)
  %8: f32[2] = add(a=%3, b=%7)
}
output %8 "y": f32[2]

; becomes
graph "g"
  input %0 "x": f32[2]
  input %1 "c": int(1)
{
  %2: f32[2] = exp(x=%0)
  %3: f32[2] = if(cond=%1) then {
    %4: f32[2] = sin(x=%2)
    yield %4
  } else {
    %5: f32[2] = sin(x=%0)
    yield %5
  }
  %6: f32[2] = sin(x=%0)
  %7: f32[2] = add(a=%3, b=%6)
}
output %7 "y": f32[2]

;;; other attributes, other order, and random numbers
graph "g"
  input %0 "a": f32[2]
  input %1 "b": f32[2]
{
  %2: f32[2] = subtract(a=%0, b=%1)
  %3: f32[2] = subtract(a=%1, b=%0)
  %4: f32[2] = round(x=%2, decimals=1)
  %5: f32[2] = round(x=%2, decimals=2)
  %6: u32[2] = random_bits(shape=[2])
  %7: u32[2] = random_bits(shape=[2])
}
output %3 "x": f32[2]
output %4 "y": f32[2]
output %5 "z": f32[2]
output %6 "u": u32[2]
output %7 "v": u32[2]
; stays

