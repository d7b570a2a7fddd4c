; Matrix products and convolutions: floats only, channels last.

;;; matrix products follow numpy
graph "matrix products follow numpy"
  symbol T in 2..=64
  input %0 "x": f32[T, 8]
  input %1 "w": f32[8, 4]
  input %2 "v": f32[8]
  input %3 "batch": f32[3, 1, T, 8]
  input %4 "many": bf16[2, 8, 4]
  input %5 "bias": f32[4]
{
  %6: f32[T, 4] = addmm(mat1=%0, mat2=%1)
  %7: f32[T, 4] = addmm(mat1=%0, mat2=%1, bias=%5)
  %8: f32[T, 4] = addmm(mat1=%0, mat2=%1, bias=%5, alpha=0.5, beta=2.0)
  %9: f32[T] = addmm(mat1=%0, mat2=%2)
  %10: f32[4] = addmm(mat1=%2, mat2=%1)
  %11: f32[] = addmm(mat1=%2, mat2=%2)
  %12: f32[3, 2, T, 4] = addmm(mat1=%3, mat2=%4)
}

;;; dtypes of products
graph "dtypes of products"
  input %0 "a": bf16[2, 3]
  input %1 "b": bf16[3, 4]
  input %2 "c": f16[3, 4]
  input %3 "bias": f32[]
{
  %4: bf16[2, 4] = addmm(mat1=%0, mat2=%1)
  %5: f32[2, 4] = addmm(mat1=%0, mat2=%2)
  %6: f32[2, 4] = addmm(mat1=%0, mat2=%1, bias=%3)
}

;;; products that do not fit
graph "products that do not fit"
  input %0 "a": f32[2, 3]
  input %1 "b": f32[4, 5]
  input %2 "n": i32[3, 4]
  input %3 "s": f32[]
  input %4 "w": f32[3, 4]
  input %5 "bias": f32[3]
{
  %6: f32[2, 5] = addmm(mat1=%0, mat2=%1)  ; error: inner sizes differ: 3 and 4
  %7: f32[2, 4] = addmm(mat1=%0, mat2=%2)  ; error: mat2 cannot be i32; a float is needed
  %8: f32[2, 4] = addmm(mat1=%2, mat2=%0)  ; error: mat1 cannot be i32; a float is needed
  %9: f32[] = addmm(mat1=%3, mat2=%0)  ; error: the left matrix has rank 0; 1 or more is needed
  %10: f32[2] = addmm(mat1=%0, mat2=%3)  ; error: the right matrix has rank 0; 1 or more is needed
  %11: f32[2, 4] = addmm(mat1=%0, mat2=%4, bias=%5)  ; error: a bias and the product differ: [3] and [2, 4]
  %12: f32[2, 4] = addmm(mat1=%0, mat2=%4, bias=%2)  ; error: bias cannot be i32; a float is needed
}

;;; matrices picked by indices
graph "matrices picked by indices"
  symbol T in 2..=64
  input %0 "x": bf16[T, 1, 1, 8]
  input %1 "w": bf16[16, 8, 4]
  input %2 "lhs": u32[T, 1]
  input %3 "rhs": i64[T, 2]
  input %4 "flag": int(T)
{
  %5: bf16[T, 2, 1, 4] = gather_mm(a=%0, b=%1, lhs_indices=%2, rhs_indices=%3)
  %6: bf16[T, 2, 1, 4] = gather_mm(a=%0, b=%1, rhs_indices=%3, sorted_indices=true)
  %7: bf16[T, 16, 1, 4] = gather_mm(a=%0, b=%1, lhs_indices=%2)
  %8: bf16[T, 16, 1, 4] = gather_mm(a=%0, b=%1)
  %9: bf16[T, 2, 1, 4] = gather_mm(a=%0, b=%1, rhs_indices=%3, sorted_indices_flag=%4)
  %10: bf16[T, 2, 1, 4] = gather_mm(a=%0, b=%1, rhs_indices=%3, sorted_indices_flag=0)
}

;;; picks that do not fit
graph "picks that do not fit"
  input %0 "a": f32[2, 3, 8]
  input %1 "b": f32[4, 7, 5]
  input %2 "v": f32[8]
  input %3 "c": f32[4, 8, 5]
  input %4 "picks": i32[2]
  input %5 "floats": f32[2]
{
  %6: f32[2, 3, 5] = gather_mm(a=%0, b=%1, rhs_indices=%4)  ; error: inner sizes differ: 8 and 7
  %7: f32[2, 5] = gather_mm(a=%2, b=%3, rhs_indices=%4)  ; error: picked matrices need two axes each
  %8: f32[2, 3, 5] = gather_mm(a=%0, b=%3, rhs_indices=%5)  ; error: an index cannot be f32; an integer is needed
  %9: f32[2, 3, 5] = gather_mm(a=%0, b=%3, lhs_indices=%4)  ; error: shapes that should broadcast differ: [2] and [4]
  %10: f32[2, 3, 5] = gather_mm(a=%0, b=%3, rhs_indices=%4, sorted_indices_flag=%2)  ; error: %2 is not a scalar
}

;;; convolution over one axis
graph "convolution over one axis"
  symbol T in 1..=100
  symbol strided in 0..=49
  input %0 "x": f32[2, 10, 6]
  input %1 "t": f32[1, T, 6]
  input %2 "w": f32[8, 3, 6]
  input %3 "depthwise": f32[6, 3, 1]
{
  %4: f32[2, 8, 8] = conv1d(x=%0, w=%2)
  %5: f32[2, 10, 8] = conv1d(x=%0, w=%2, padding=1)
  %6: f32[2, 4, 8] = conv1d(x=%0, w=%2, stride=2)
  %7: f32[2, 6, 8] = conv1d(x=%0, w=%2, dilation=2)
  %8: f32[2, 8, 6] = conv1d(x=%0, w=%3, groups=6)
  %9: f32[1, T-2, 8] = conv1d(x=%1, w=%2)
  %10: f32[1, T, 8] = conv1d(x=%1, w=%2, padding=1)
  %11: f32[1, strided, 8] = conv1d(x=%1, w=%2, stride=2)
}

;;; convolution over two and three axes
graph "convolution over two and three axes"
  input %0 "x": bf16[1, 9, 7, 4]
  input %1 "w": f32[5, 3, 2, 4]
  input %2 "g": bf16[6, 3, 3, 2]
  input %3 "cube": f16[1, 4, 6, 8, 3]
  input %4 "k": f16[2, 2, 3, 4, 3]
{
  %5: f32[1, 7, 6, 5] = conv2d(x=%0, w=%1)
  %6: f32[1, 4, 2, 5] = conv2d(x=%0, w=%1, stride_h=2, stride_w=3)
  %7: f32[1, 11, 8, 5] = conv2d(x=%0, w=%1, padding_h=2, padding_w=1)
  %8: f32[1, 5, 4, 5] = conv2d(x=%0, w=%1, dilation_h=2, dilation_w=3)
  %9: bf16[1, 7, 5, 6] = conv2d(x=%0, w=%2, groups=2)
  %10: f16[1, 3, 4, 5, 2] = conv3d(x=%3, w=%4)
  %11: f16[1, 2, 2, 2, 2] = conv3d(x=%3, w=%4, stride_d=2, stride_h=2, stride_w=3)
  %12: f16[1, 5, 6, 9, 2] = conv3d(x=%3, w=%4, padding_d=1, padding_h=1, padding_w=2)
  %13: f16[1, 2, 2, 2, 2] = conv3d(x=%3, w=%4, dilation_d=2, dilation_h=2, dilation_w=2)
}

;;; transposed convolution
graph "transposed convolution"
  symbol T in 1..=100
  input %0 "x": f32[2, 5, 6]
  input %1 "t": f32[1, T, 6]
  input %2 "w": f32[8, 3, 6]
  input %3 "grouped": f32[4, 3, 2]
  input %4 "image": f32[1, 4, 5, 6]
  input %5 "k": f32[8, 3, 2, 6]
  input %6 "cube": f32[1, 2, 3, 4, 6]
  input %7 "k3": f32[8, 3, 3, 3, 6]
{
  %8: f32[2, 7, 8] = conv_transpose1d(x=%0, w=%2)
  %9: f32[2, 11, 8] = conv_transpose1d(x=%0, w=%2, stride=2)
  %10: f32[2, 10, 8] = conv_transpose1d(x=%0, w=%2, stride=2, padding=1, output_padding=1)
  %11: f32[2, 9, 8] = conv_transpose1d(x=%0, w=%2, dilation=2)
  %12: f32[2, 7, 4] = conv_transpose1d(x=%0, w=%3, groups=3)  ; error: 4 output channels in 3 groups
  %13: f32[1, 2*T+1, 8] = conv_transpose1d(x=%1, w=%2, stride=2)
  %14: f32[1, 6, 6, 8] = conv_transpose2d(x=%4, w=%5)
  %15: f32[1, 9, 10, 8] = conv_transpose2d(x=%4, w=%5, stride_h=2, stride_w=2)
  %16: f32[1, 4, 4, 8] = conv_transpose2d(x=%4, w=%5, padding_h=1, padding_w=1)
  %17: f32[1, 8, 8, 8] = conv_transpose2d(x=%4, w=%5, dilation_h=2, dilation_w=3)
  %18: f32[1, 4, 5, 6, 8] = conv_transpose3d(x=%6, w=%7)
  %19: f32[1, 4, 6, 8, 8] = conv_transpose3d(x=%6, w=%7, stride_d=2, stride_h=2, stride_w=2, padding_d=1, padding_h=1, padding_w=1, output_padding_d=1, output_padding_h=1, output_padding_w=1)
}

;;; convolutions that do not fit
graph "convolutions that do not fit"
  input %0 "x": f32[2, 10, 6]
  input %1 "w": f32[8, 3, 6]
  input %2 "other": f32[8, 3, 5]
  input %3 "n": i32[8, 3, 6]
  input %4 "long": f32[8, 11, 6]
  input %5 "flat": f32[10, 6]
  input %6 "image": f32[1, 4, 5, 6]
  input %7 "k": f32[8, 3, 7, 6]
  input %8 "cube": f32[1, 2, 3, 4, 6]
  input %9 "k3": f32[8, 3, 3, 3, 6]
  input %10 "odd": f32[7, 3, 3]
{
  %11: f32[2, 8, 8] = conv1d(x=%0, w=%2)  ; error: channels of x and w differ: 6 and 5
  %12: f32[2, 8, 8] = conv1d(x=%0, w=%3)  ; error: w cannot be i32; a float is needed
  %13: f32[2, 8, 8] = conv1d(x=%0, w=%4)  ; error: the kernel reaches beyond [2, 10, 6]
  %14: f32[2, 8, 8] = conv1d(x=%5, w=%1)  ; error: x has rank 2; 3 is needed
  %15: f32[2, 8, 8] = conv1d(x=%0, w=%1, stride=0)  ; error: stride [0], padding [0], dilation [1], groups 1: strides, dilations and groups are at least 1, paddings at least 0
  %16: f32[2, 8, 8] = conv1d(x=%0, w=%1, padding=-1)  ; error: stride [1], padding [-1], dilation [1], groups 1: strides, dilations and groups are at least 1, paddings at least 0
  %17: f32[2, 8, 7] = conv1d(x=%0, w=%10, groups=2)  ; error: 7 output channels in 2 groups
  %18: f32[1, 2, 1, 8] = conv2d(x=%6, w=%7)  ; error: the kernel reaches beyond [1, 4, 5, 6]
  %19: f32[1, 2, 2, 2, 8] = conv3d(x=%8, w=%9)  ; error: the kernel reaches beyond [1, 2, 3, 4, 6]
  %20: f32[2, 12, 8] = conv_transpose1d(x=%0, w=%2)  ; error: channels of x and w differ: 6 and 5
  %21: f32[2, 12, 8] = conv_transpose1d(x=%0, w=%1, output_padding=-1)  ; error: output padding -1
  %22: f32[2, 12, 8] = conv_transpose1d(x=%0, w=%1, padding=7)  ; error: padding leaves nothing of [2, 10, 6]
  %23: f32[1, 6, 6, 8] = conv_transpose2d(x=%0, w=%7)  ; error: x has rank 3; 4 is needed
  %24: f32[1, 4, 5, 6, 8] = conv_transpose3d(x=%8, w=%9, groups=0)  ; error: stride [1, 1, 1], padding [0, 0, 0], dilation [1, 1, 1], groups 0: strides, dilations and groups are at least 1, paddings at least 0
}
