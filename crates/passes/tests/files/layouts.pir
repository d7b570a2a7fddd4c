; Transposes between convolutions.

;;; two convolutions with a norm and an activation between them
graph "g"
  input %0 "x": f32[1, 3, 6, 6]
  constant %1 "w": f32[4, 3, 3, 3]
  constant %2 "scale": f32[1, 4, 1, 1]
  constant %3 "shift": f32[1, 4, 1, 1]
  constant %4 "low": f32[]
  constant %5 "v": f32[2, 1, 1, 4]
{
  %6: f32[1, 6, 6, 3] = transpose(x=%0, perm=[0, 2, 3, 1])
  %7: f32[1, 6, 6, 4] = conv2d(x=%6, w=%1, padding_h=1, padding_w=1)
  %8: f32[1, 4, 6, 6] = transpose(x=%7, perm=[0, 3, 1, 2])
  %9: f32[1, 4, 6, 6] = multiply(a=%8, b=%2)
  %10: f32[1, 4, 6, 6] = add(a=%9, b=%3)
  %11: f32[1, 4, 6, 6] = maximum(a=%10, b=%4)
  %12: f32[1, 6, 6, 4] = transpose(x=%11, perm=[0, 2, 3, 1])
  %13: f32[1, 6, 6, 2] = conv2d(x=%12, w=%5)
  %14: f32[1, 2, 6, 6] = transpose(x=%13, perm=[0, 3, 1, 2])
}
output %14 "y": f32[1, 2, 6, 6]

; becomes
graph "g"
  input %0 "x": f32[1, 3, 6, 6]
  constant %1 "w": f32[4, 3, 3, 3]
  constant %2 "scale": f32[1, 4, 1, 1]
  constant %3 "shift": f32[1, 4, 1, 1]
  constant %4 "low": f32[]
  constant %5 "v": f32[2, 1, 1, 4]
{
  %6: f32[1, 6, 6, 3] = transpose(x=%0, perm=[0, 2, 3, 1])
  %7: f32[1, 6, 6, 4] = conv2d(x=%6, w=%1, padding_h=1, padding_w=1)
  %10: f32[1, 1, 1, 4] = reshape(x=%2, shape=[1, 1, 1, 4])
  %11: f32[1, 6, 6, 4] = multiply(a=%7, b=%10)
  %12: f32[1, 1, 1, 4] = reshape(x=%3, shape=[1, 1, 1, 4])
  %13: f32[1, 6, 6, 4] = add(a=%11, b=%12)
  %14: f32[1, 6, 6, 4] = maximum(a=%13, b=%4)
  %8: f32[1, 6, 6, 2] = conv2d(x=%14, w=%5)
  %9: f32[1, 2, 6, 6] = transpose(x=%8, perm=[0, 3, 1, 2])
}
output %9 "y": f32[1, 2, 6, 6]

;;; a residual sum, and constants whose data is at hand
; data "scale": 2 3 4 5
graph "g"
  input %0 "x": f32[1, 4, 5, 5]
  constant %1 "w": f32[4, 3, 3, 1]
  constant %2 "scale": f32[4, 1, 1]
  constant %3 "v": f32[4, 1, 1, 4]
{
  %4: f32[1, 5, 5, 4] = transpose(x=%0, perm=[0, 2, 3, 1])
  %5: f32[1, 5, 5, 4] = conv2d(x=%4, w=%1, padding_h=1, padding_w=1, groups=4)
  %6: f32[1, 4, 5, 5] = transpose(x=%5, perm=[0, 3, 1, 2])
  %7: f32[1, 4, 5, 5] = multiply(a=%2, b=%6)
  %8: f32[1, 5, 5, 4] = transpose(x=%7, perm=[0, 2, 3, 1])
  %9: f32[1, 5, 5, 4] = conv2d(x=%8, w=%3)
  %10: f32[1, 4, 5, 5] = transpose(x=%9, perm=[0, 3, 1, 2])
  %11: f32[1, 4, 5, 5] = add(a=%7, b=%10)
  %12: f32[1, 4] = mean(x=%11, axes=[2, 3])
  %13: f32[1, 4, 1, 1] = mean(x=%11, axes=[-1, -2], keepdims=true)
  %14: f32[1, 4] = reshape(x=%13, shape=[1, 4])
}
output %12 "y": f32[1, 4]
output %14 "z": f32[1, 4]

; becomes
graph "g"
  input %0 "x": f32[1, 4, 5, 5]
  constant %1 "w": f32[4, 3, 3, 1]
  constant %2 "v": f32[4, 1, 1, 4]
  constant %6 "scale_channels_last": f32[1, 1, 1, 4]
{
  %3: f32[1, 5, 5, 4] = transpose(x=%0, perm=[0, 2, 3, 1])
  %4: f32[1, 5, 5, 4] = conv2d(x=%3, w=%1, padding_h=1, padding_w=1, groups=4)
  %7: f32[1, 5, 5, 4] = multiply(a=%6, b=%4)
  %5: f32[1, 5, 5, 4] = conv2d(x=%7, w=%2)
  %8: f32[1, 5, 5, 4] = add(a=%7, b=%5)
  %9: f32[1, 4] = mean(x=%8, axes=[1, 2])
  %10: f32[1, 1, 1, 4] = mean(x=%8, axes=[2, 1], keepdims=true)
  %11: f32[1, 4] = reshape(x=%10, shape=[1, 4])
}
output %9 "y": f32[1, 4]
output %11 "z": f32[1, 4]

;;; pads, slices and concatenations (a pool)
graph "g"
  input %0 "x": f32[1, 2, 4, 4]
  constant %1 "w": f32[3, 1, 1, 2]
  constant %2 "v": f32[2, 1, 1, 6]
{
  %3: f32[1, 4, 4, 2] = transpose(x=%0, perm=[0, 2, 3, 1])
  %4: f32[1, 4, 4, 3] = conv2d(x=%3, w=%1)
  %5: f32[1, 3, 4, 4] = transpose(x=%4, perm=[0, 3, 1, 2])
  %6: f32[1, 3, 6, 4] = pad(x=%5, pad_width=[0, 0, 0, 0, 1, 1, 0, 0], mode="constant", constant_value=-7.0)
  %7: f32[1, 3, 2, 4] = slice(x=%6, axis=2, start=0, stop=3, step=2)
  %8: f32[1, 3, 2, 4] = slice(x=%6, axis=-2, start=1, stop=4, step=2)
  %9: f32[1, 3, 2, 4] = maximum(a=%7, b=%8)
  %10: f32[1, 6, 2, 4] = concatenate(tensors=[%9, %7], axis=1)
  %11: f32[1, 2, 4, 6] = transpose(x=%10, perm=[0, 2, 3, 1])
  %12: f32[1, 2, 4, 2] = conv2d(x=%11, w=%2)
}
output %12 "y": f32[1, 2, 4, 2]

; becomes
graph "g"
  input %0 "x": f32[1, 2, 4, 4]
  constant %1 "w": f32[3, 1, 1, 2]
  constant %2 "v": f32[2, 1, 1, 6]
{
  %3: f32[1, 4, 4, 2] = transpose(x=%0, perm=[0, 2, 3, 1])
  %4: f32[1, 4, 4, 3] = conv2d(x=%3, w=%1)
  %6: f32[1, 6, 4, 3] = pad(x=%4, pad_width=[0, 0, 1, 1, 0, 0, 0, 0], mode="constant", constant_value=-7.0)
  %7: f32[1, 2, 4, 3] = slice(x=%6, axis=1, start=0, stop=3, step=2)
  %8: f32[1, 2, 4, 3] = slice(x=%6, axis=1, start=1, stop=4, step=2)
  %9: f32[1, 2, 4, 3] = maximum(a=%7, b=%8)
  %10: f32[1, 2, 4, 6] = concatenate(tensors=[%9, %7], axis=3)
  %5: f32[1, 2, 4, 2] = conv2d(x=%10, w=%2)
}
output %5 "y": f32[1, 2, 4, 2]

;;; patches become rows
graph "g"
  input %0 "x": f32[1, 3, 4, 4]
  constant %1 "w": f32[5, 2, 2, 3]
{
  %2: f32[1, 4, 4, 3] = transpose(x=%0, perm=[0, 2, 3, 1])
  %3: f32[1, 2, 2, 5] = conv2d(x=%2, w=%1, stride_h=2, stride_w=2)
  %4: f32[1, 5, 2, 2] = transpose(x=%3, perm=[0, 3, 1, 2])
  %5: f32[1, 5, 4] = reshape(x=%4, shape=[1, 5, -1])
  %6: f32[1, 4, 5] = transpose(x=%5, perm=[0, 2, 1])
}
output %6 "y": f32[1, 4, 5]

; becomes
graph "g"
  input %0 "x": f32[1, 3, 4, 4]
  constant %1 "w": f32[5, 2, 2, 3]
{
  %2: f32[1, 4, 4, 3] = transpose(x=%0, perm=[0, 2, 3, 1])
  %3: f32[1, 2, 2, 5] = conv2d(x=%2, w=%1, stride_h=2, stride_w=2)
  %4: f32[1, 4, 5] = reshape(x=%3, shape=[1, 4, 5])
}
output %4 "y": f32[1, 4, 5]

;;; heads of attention are nobody's business here
graph "g"
  input %0 "x": f32[1, 3, 2, 4]
  constant %1 "s": f32[]
{
  %2: f32[1, 2, 3, 4] = transpose(x=%0, perm=[0, 2, 1, 3])
  %3: f32[1, 2, 3, 4] = multiply(a=%2, b=%1)
}
output %3 "y": f32[1, 2, 3, 4]

; stays

;;; an operand in the other layout that is no constant
graph "g"
  input %0 "x": f32[1, 4, 4, 2]
  input %1 "y": f32[1, 3, 4, 4]
  constant %2 "w": f32[3, 1, 1, 2]
{
  %3: f32[1, 4, 4, 3] = conv2d(x=%0, w=%2)
  %4: f32[1, 3, 4, 4] = transpose(x=%3, perm=[0, 3, 1, 2])
  %5: f32[1, 3, 4, 4] = add(a=%4, b=%1)
}
output %5 "z": f32[1, 3, 4, 4]
; stays

