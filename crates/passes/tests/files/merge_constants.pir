; Constants of equal type and bytes.

;;; tied weights
; data "embedding": 1 2 3 4
; data "head": 1 2 3 4
graph "g"
  input %0 "x": f32[1, 2]
  input %1 "i": i64[1]
  constant %2 "embedding": f32[2, 2]
  constant %3 "head": f32[2, 2]
{
  %4: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %5: f32[1, 2] = add(a=%4, b=%0)
  %6: f32[2, 2] = transpose(x=%3, perm=[1, 0])
  %7: f32[1, 2] = addmm(mat1=%5, mat2=%6)
}
output %7 "y": f32[1, 2]

; becomes
graph "g"
  input %0 "x": f32[1, 2]
  input %1 "i": i64[1]
  constant %2 "embedding": f32[2, 2]
{
  %3: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %4: f32[1, 2] = add(a=%3, b=%0)
  %5: f32[2, 2] = transpose(x=%2, perm=[1, 0])
  %6: f32[1, 2] = addmm(mat1=%4, mat2=%5)
}
output %6 "y": f32[1, 2]

;;; other numbers, other shapes, other dtypes, and data that is not at hand
; data "a": 1 2
; data "b": 1 3
; data "c": 1 2
; data "d": 1 2
graph "g"
  constant %0 "a": f32[2]
  constant %1 "b": f32[2]
  constant %2 "c": f32[1, 2]
  constant %3 "d": bf16[2]
  constant %4 "e": f32[2]
{
  %5: f32[2] = add(a=%0, b=%1)
  %6: f32[1, 2] = add(a=%5, b=%2)
  %7: f32[1, 2] = add(a=%6, b=%3)
  %8: f32[1, 2] = add(a=%7, b=%4)
}
output %8 "y": f32[1, 2]
; stays

