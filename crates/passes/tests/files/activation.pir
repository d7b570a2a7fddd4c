; Activations that models spell out.

;;; SiLU
graph "g"
  input %0 "x": f32[3]
{
  %1: f32[3] = sigmoid(x=%0)
  %2: f32[3] = multiply(a=%1, b=%0)
}
output %2 "y": f32[3]

; becomes
graph "g"
  input %0 "x": f32[3]
{
  %1: f32[3] = silu(x=%0)
}
output %1 "y": f32[3]

;;; GELU by the error function
; data "half": 0.5
; data "root": 0.7071067811865476
; data "one": 1
graph "g"
  input %0 "x": f32[3]
  constant %1 "half": f32[]
  constant %2 "root": f32[]
  constant %3 "one": f32[]
{
  %4: f32[3] = multiply(a=%0, b=%2)
  %5: f32[3] = erf(x=%4)
  %6: f32[3] = add(a=%5, b=%3)
  %7: f32[3] = multiply(a=%0, b=%1)
  %8: f32[3] = multiply(a=%7, b=%6)
}
output %8 "y": f32[3]

; becomes
graph "g"
  input %0 "x": f32[3]
{
  %1: f32[3] = gelu(x=%0, approximate="none")
}
output %1 "y": f32[3]

;;; GELU by the tanh
; data "half": 0.5
; data "root": 0.7978845608028654
; data "factor": 0.044715
; data "one": 1
; data "three": 3
graph "g"
  input %0 "x": f32[3]
  constant %1 "half": f32[]
  constant %2 "root": f32[]
  constant %3 "factor": f32[]
  constant %4 "one": f32[]
  constant %5 "three": f32[]
{
  %6: f32[3] = power(a=%0, b=%5)
  %7: f32[3] = multiply(a=%6, b=%3)
  %8: f32[3] = add(a=%0, b=%7)
  %9: f32[3] = multiply(a=%8, b=%2)
  %10: f32[3] = tanh(x=%9)
  %11: f32[3] = add(a=%10, b=%4)
  %12: f32[3] = multiply(a=%1, b=%0)
  %13: f32[3] = multiply(a=%12, b=%11)
}
output %13 "y": f32[3]

; becomes
graph "g"
  input %0 "x": f32[3]
{
  %1: f32[3] = gelu(x=%0, approximate="tanh")
}
output %1 "y": f32[3]

;;; the sigmoid of something else, another factor, and a third of x
; data "half": 0.6
; data "root": 0.7071067811865476
; data "one": 1
graph "g"
  input %0 "x": f32[3]
  input %1 "z": f32[3]
  constant %2 "half": f32[]
  constant %3 "root": f32[]
  constant %4 "one": f32[]
{
  %5: f32[3] = sigmoid(x=%1)
  %6: f32[3] = multiply(a=%5, b=%0)
  %7: f32[3] = multiply(a=%0, b=%3)
  %8: f32[3] = erf(x=%7)
  %9: f32[3] = add(a=%8, b=%4)
  %10: f32[3] = multiply(a=%0, b=%2)
  %11: f32[3] = multiply(a=%10, b=%9)
}
output %6 "y": f32[3]
output %11 "z": f32[3]
; stays

