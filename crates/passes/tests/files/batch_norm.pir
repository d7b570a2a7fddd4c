; Factors and sums by channel behind a convolution.

;;; a norm behind a convolution
; data "w": 1 2 3 4 5 6
; data "scale": 2 -1
; data "shift": 0.5 0.25
graph "g"
  input %0 "x": f32[1, 4, 4, 3]
  constant %1 "w": f32[2, 1, 1, 3]
  constant %2 "scale": f32[1, 1, 1, 2]
  constant %3 "shift": f32[2]
{
  %4: f32[1, 4, 4, 2] = conv2d(x=%0, w=%1)
  %5: f32[1, 4, 4, 2] = multiply(a=%4, b=%2)
  %6: f32[1, 4, 4, 2] = add(a=%3, b=%5)
}
output %6 "y": f32[1, 4, 4, 2]

; becomes
graph "g"
  input %0 "x": f32[1, 4, 4, 3]
  constant %1 "shift": f32[2]
  constant %3 "w_scaled": f32[2, 1, 1, 3]
{
  %4: f32[1, 4, 4, 2] = conv2d(x=%0, w=%3)
  %2: f32[1, 4, 4, 2] = add(a=%1, b=%4)
}
output %2 "y": f32[1, 4, 4, 2]

;;; a norm behind a convolution with a bias, of one axis
; data "w": 1 2 3 4
; data "b": 7 8
; data "scale": 2 3
; data "shift": 0.5 0.25
graph "g"
  input %0 "x": f32[1, 5, 2]
  constant %1 "w": f32[2, 2, 1]
  constant %2 "b": f32[2]
  constant %3 "scale": f32[1, 1, 2]
  constant %4 "shift": f32[1, 1, 2]
{
  %5: f32[1, 4, 2] = conv1d(x=%0, w=%1, groups=2)
  %6: f32[1, 4, 2] = add(a=%5, b=%2)
  %7: f32[1, 4, 2] = multiply(a=%6, b=%3)
  %8: f32[1, 4, 2] = add(a=%7, b=%4)
}
output %8 "y": f32[1, 4, 2]

; becomes
graph "g"
  input %0 "x": f32[1, 5, 2]
  constant %1 "w_scaled": f32[2, 2, 1]
  constant %3 "b_scaled_shifted": f32[2]
{
  %2: f32[1, 4, 2] = conv1d(x=%0, w=%1, groups=2)
  %4: f32[1, 4, 2] = add(a=%2, b=%3)
}
output %4 "y": f32[1, 4, 2]

;;; somebody else reads what the convolution gives
; data "w": 1 2 3 4 5 6
; data "scale": 2 -1
graph "g"
  input %0 "x": f32[1, 4, 4, 3]
  constant %1 "w": f32[2, 1, 1, 3]
  constant %2 "scale": f32[2]
{
  %3: f32[1, 4, 4, 2] = conv2d(x=%0, w=%1)
  %4: f32[1, 4, 4, 2] = multiply(a=%3, b=%2)
  %5: f32[1, 4, 4, 2] = add(a=%3, b=%4)
}
output %5 "y": f32[1, 4, 4, 2]

; stays

;;; a factor that is not by channel
; data "w": 1 2 3 4 5 6
; data "scale": 2 -1 3 4
graph "g"
  input %0 "x": f32[1, 4, 4, 3]
  constant %1 "w": f32[2, 1, 1, 3]
  constant %2 "scale": f32[4, 1]
{
  %3: f32[1, 4, 4, 2] = conv2d(x=%0, w=%1)
  %4: f32[1, 4, 4, 2] = multiply(a=%3, b=%2)
}
output %4 "y": f32[1, 4, 4, 2]
; stays

