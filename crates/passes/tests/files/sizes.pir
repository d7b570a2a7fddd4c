; Integers that are known.

;;; one size, one sum
graph "g"
  symbol T in 2..=8
  symbol n in 0..=100
  input %0 "x": f32[1, T, 4]
  input %1 "start": int(n)
{
  %2: int(T) = sym_size(a=%0, dim=1)
  %3: int(T+n) = add_int(a=%1, b=%2)
  %4: f32[1, T, 4] = exp(x=%0)
  %5: int(T) = sym_size(a=%4, dim=1)
  %6: int(T+n) = add_int(a=%1, b=%5)
  %7: int(2*T+2*n) = add_int(a=%3, b=%6)
}
output %7 "y": int(2*T+2*n)

; becomes
graph "g"
  symbol T in 2..=8
  symbol n in 0..=100
  input %0 "x": f32[1, T, 4]
  input %1 "start": int(n)
{
  %2: int(T) = sym_size(a=%0, dim=1)
  %3: int(T+n) = add_int(a=%1, b=%2)
  %4: int(2*T+2*n) = add_int(a=%3, b=%3)
}
output %4 "y": int(2*T+2*n)

;;; known ones are numbers
graph "g"
  input %0 "x": f32[2, 6]
{
  %1: int(6) = sym_size(a=%0, dim=1)
  %2: int(3) = floor_divide_int(a=%1, b=2)
  %3: f32[4, 3] = reshape(x=%0, shape=[4, %2])
}
output %3 "y": f32[4, 3]

; becomes
graph "g"
  input %0 "x": f32[2, 6]
{
  %1: int(6) = sym_size(a=%0, dim=1)
  %2: int(3) = floor_divide_int(a=6, b=2)
  %3: f32[4, 3] = reshape(x=%0, shape=[4, 3])
}
output %3 "y": f32[4, 3]

;;; sizes that may differ
graph "g"
  symbol A in 2..=8
  symbol B in 2..=8
  input %0 "x": f32[A]
  input %1 "y": f32[B]
{
  %2: int(A) = sym_size(a=%0, dim=0)
  %3: int(B) = sym_size(a=%1, dim=0)
}
output %2 "a": int(A)
output %3 "b": int(B)
; stays

