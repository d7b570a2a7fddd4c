; RMS normalisation as models write it.

;;; Llama in f32
; data "eps": 1e-6
graph "g"
  symbol T in 2..=8
  input %0 "x": f32[1, T, 4]
  constant %1 "w": f32[4]
  constant %2 "eps": f32[]
{
  %3: f32[1, T, 4] = square(x=%0)
  %4: f32[1, T, 1] = mean(x=%3, axes=[2], keepdims=true)
  %5: f32[1, T, 1] = add(a=%4, b=%2)
  %6: f32[1, T, 1] = rsqrt(x=%5)
  %7: f32[1, T, 4] = multiply(a=%0, b=%6)
  %8: f32[1, T, 4] = multiply(a=%1, b=%7)
}
output %8 "y": f32[1, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "x": f32[1, T, 4]
  constant %1 "w": f32[4]
{
  %2: f32[1, T, 4] = rms_norm(x=%0, weight=%1, eps=1e-6)
}
output %2 "y": f32[1, T, 4]

;;; Llama and Qwen in bf16: converted back before the weight
; data "eps": 1e-6
; data "two": 2
graph "g"
  symbol T in 2..=8
  input %0 "x": bf16[1, T, 4]
  constant %1 "w": bf16[4]
  constant %2 "eps": f32[]
  constant %3 "two": f32[]
{
  %4: f32[1, T, 4] = as_type(x=%0, scalar_type=f32)
  %5: f32[1, T, 4] = power(a=%4, b=%3)
  %6: f32[1, T, 1] = mean(x=%5, axes=[-1], keepdims=true)
  %7: f32[1, T, 1] = add(a=%2, b=%6)
  %8: f32[1, T, 1] = rsqrt(x=%7)
  %9: f32[1, T, 4] = multiply(a=%8, b=%4)
  %10: bf16[1, T, 4] = as_type(x=%9, scalar_type=bf16)
  %11: bf16[1, T, 4] = multiply(a=%1, b=%10)
}
output %11 "y": bf16[1, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "x": bf16[1, T, 4]
  constant %1 "w": bf16[4]
{
  %2: bf16[1, T, 4] = rms_norm(x=%0, weight=%1, eps=1e-6)
}
output %2 "y": bf16[1, T, 4]

;;; Gemma in bf16: times one plus the weight in f32, converted back last
; data "eps": 1e-6
; data "one": 1
graph "g"
  symbol T in 2..=8
  input %0 "x": bf16[1, T, 4]
  constant %1 "w": bf16[4]
  constant %2 "eps": f32[]
  constant %3 "one": f32[]
{
  %4: f32[1, T, 4] = as_type(x=%0, scalar_type=f32)
  %5: f32[1, T, 4] = multiply(a=%4, b=%4)
  %6: f32[1, T, 1] = mean(x=%5, axes=[2], keepdims=true)
  %7: f32[1, T, 1] = add(a=%6, b=%2)
  %8: f32[1, T, 1] = sqrt(x=%7)
  %9: f32[1, T, 4] = divide(a=%4, b=%8)
  %10: f32[4] = as_type(x=%1, scalar_type=f32)
  %11: f32[4] = add(a=%10, b=%3)
  %12: f32[1, T, 4] = multiply(a=%9, b=%11)
  %13: bf16[1, T, 4] = as_type(x=%12, scalar_type=bf16)
}
output %13 "y": bf16[1, T, 4]

; becomes
graph "g"
  symbol T in 2..=8
  input %0 "x": bf16[1, T, 4]
  constant %1 "w": bf16[4]
  constant %2 "one": f32[]
{
  %3: f32[4] = as_type(x=%1, scalar_type=f32)
  %4: f32[4] = add(a=%3, b=%2)
  %6: f32[1, T, 4] = rms_norm(x=%0, weight=%4, eps=1e-6)
  %5: bf16[1, T, 4] = as_type(x=%6, scalar_type=bf16)
}
output %5 "y": bf16[1, T, 4]

;;; a mean over another axis
; data "eps": 1e-6
; left: the mean is not over the last axis, kept
graph "g"
  input %0 "x": f32[3, 4]
  constant %1 "eps": f32[]
{
  %2: f32[3, 4] = square(x=%0)
  %3: f32[1, 4] = mean(x=%2, axes=[0], keepdims=true)
  %4: f32[1, 4] = add(a=%3, b=%1)
  %5: f32[1, 4] = rsqrt(x=%4)
  %6: f32[3, 4] = multiply(a=%0, b=%5)
}
output %6 "y": f32[3, 4]

; stays

;;; the square of something else, and a number that is not known
; data "eps": 1e-6
; left: the mean is not of the square of what is scaled
; left: what is added to the mean is no known number
graph "g"
  input %0 "x": f32[3, 4]
  input %1 "z": f32[3, 4]
  input %2 "e": f32[]
  constant %3 "eps": f32[]
{
  %4: f32[3, 4] = square(x=%1)
  %5: f32[3, 1] = mean(x=%4, axes=[1], keepdims=true)
  %6: f32[3, 1] = add(a=%5, b=%3)
  %7: f32[3, 1] = rsqrt(x=%6)
  %8: f32[3, 4] = multiply(a=%0, b=%7)
  %9: f32[3, 1] = add(a=%5, b=%2)
  %10: f32[3, 1] = rsqrt(x=%9)
  %11: f32[3, 4] = multiply(a=%1, b=%10)
}
output %8 "y": f32[3, 4]
output %11 "z": f32[3, 4]
; stays

