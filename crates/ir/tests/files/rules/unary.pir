; Ops of one tensor that keep its shape. Functions of real numbers turn integers and bools into f32; rounding, sign
; and squares keep the dtype (semantics.md, section 2).

;;; real functions of floats keep the dtype
graph "real functions of floats keep the dtype"
  symbol T in 2..=64
  input %0 "f32": f32[2, T]
{
  %1: f32[2, T] = silu(x=%0)
  %2: f32[2, T] = sigmoid(x=%0)
  %3: f32[2, T] = tanh(x=%0)
  %4: f32[2, T] = rsqrt(x=%0)
  %5: f32[2, T] = log(x=%0)
  %6: f32[2, T] = exp(x=%0)
  %7: f32[2, T] = sin(x=%0)
  %8: f32[2, T] = cos(x=%0)
  %9: f32[2, T] = tan(x=%0)
  %10: f32[2, T] = arcsin(x=%0)
  %11: f32[2, T] = arccos(x=%0)
  %12: f32[2, T] = arctan(x=%0)
  %13: f32[2, T] = sinh(x=%0)
  %14: f32[2, T] = cosh(x=%0)
  %15: f32[2, T] = arcsinh(x=%0)
  %16: f32[2, T] = arccosh(x=%0)
  %17: f32[2, T] = arctanh(x=%0)
  %18: f32[2, T] = log2(x=%0)
  %19: f32[2, T] = log10(x=%0)
  %20: f32[2, T] = log1p(x=%0)
  %21: f32[2, T] = erf(x=%0)
  %22: f32[2, T] = expm1(x=%0)
  %23: f32[2, T] = reciprocal(x=%0)
  %24: f32[2, T] = sqrt(x=%0)
}

;;; real functions of 16-bit floats keep the dtype
graph "real functions of 16-bit floats keep the dtype"
  symbol T in 2..=64
  input %0 "f16": f16[2, T]
  input %1 "bf16": bf16[2, T]
{
  %2: f16[2, T] = silu(x=%0)
  %3: bf16[2, T] = silu(x=%1)
  %4: f16[2, T] = sigmoid(x=%0)
  %5: bf16[2, T] = sigmoid(x=%1)
  %6: f16[2, T] = tanh(x=%0)
  %7: bf16[2, T] = tanh(x=%1)
  %8: f16[2, T] = rsqrt(x=%0)
  %9: bf16[2, T] = rsqrt(x=%1)
  %10: f16[2, T] = log(x=%0)
  %11: bf16[2, T] = log(x=%1)
  %12: f16[2, T] = exp(x=%0)
  %13: bf16[2, T] = exp(x=%1)
  %14: f16[2, T] = sin(x=%0)
  %15: bf16[2, T] = sin(x=%1)
  %16: f16[2, T] = cos(x=%0)
  %17: bf16[2, T] = cos(x=%1)
  %18: f16[2, T] = tan(x=%0)
  %19: bf16[2, T] = tan(x=%1)
  %20: f16[2, T] = arcsin(x=%0)
  %21: bf16[2, T] = arcsin(x=%1)
  %22: f16[2, T] = arccos(x=%0)
  %23: bf16[2, T] = arccos(x=%1)
  %24: f16[2, T] = arctan(x=%0)
  %25: bf16[2, T] = arctan(x=%1)
  %26: f16[2, T] = sinh(x=%0)
  %27: bf16[2, T] = sinh(x=%1)
  %28: f16[2, T] = cosh(x=%0)
  %29: bf16[2, T] = cosh(x=%1)
  %30: f16[2, T] = arcsinh(x=%0)
  %31: bf16[2, T] = arcsinh(x=%1)
  %32: f16[2, T] = arccosh(x=%0)
  %33: bf16[2, T] = arccosh(x=%1)
  %34: f16[2, T] = arctanh(x=%0)
  %35: bf16[2, T] = arctanh(x=%1)
  %36: f16[2, T] = log2(x=%0)
  %37: bf16[2, T] = log2(x=%1)
  %38: f16[2, T] = log10(x=%0)
  %39: bf16[2, T] = log10(x=%1)
  %40: f16[2, T] = log1p(x=%0)
  %41: bf16[2, T] = log1p(x=%1)
  %42: f16[2, T] = erf(x=%0)
  %43: bf16[2, T] = erf(x=%1)
  %44: f16[2, T] = expm1(x=%0)
  %45: bf16[2, T] = expm1(x=%1)
  %46: f16[2, T] = reciprocal(x=%0)
  %47: bf16[2, T] = reciprocal(x=%1)
  %48: f16[2, T] = sqrt(x=%0)
  %49: bf16[2, T] = sqrt(x=%1)
}

;;; real functions of integers give f32
graph "real functions of integers give f32"
  symbol T in 2..=64
  input %0 "i32": i32[2, T]
{
  %1: f32[2, T] = silu(x=%0)
  %2: f32[2, T] = sigmoid(x=%0)
  %3: f32[2, T] = tanh(x=%0)
  %4: f32[2, T] = rsqrt(x=%0)
  %5: f32[2, T] = log(x=%0)
  %6: f32[2, T] = exp(x=%0)
  %7: f32[2, T] = sin(x=%0)
  %8: f32[2, T] = cos(x=%0)
  %9: f32[2, T] = tan(x=%0)
  %10: f32[2, T] = arcsin(x=%0)
  %11: f32[2, T] = arccos(x=%0)
  %12: f32[2, T] = arctan(x=%0)
  %13: f32[2, T] = sinh(x=%0)
  %14: f32[2, T] = cosh(x=%0)
  %15: f32[2, T] = arcsinh(x=%0)
  %16: f32[2, T] = arccosh(x=%0)
  %17: f32[2, T] = arctanh(x=%0)
  %18: f32[2, T] = log2(x=%0)
  %19: f32[2, T] = log10(x=%0)
  %20: f32[2, T] = log1p(x=%0)
  %21: f32[2, T] = erf(x=%0)
  %22: f32[2, T] = expm1(x=%0)
  %23: f32[2, T] = reciprocal(x=%0)
  %24: f32[2, T] = sqrt(x=%0)
}

;;; real functions of small integers and bools give f32
graph "real functions of small integers and bools give f32"
  symbol T in 2..=64
  input %0 "bool": bool[2, T]
  input %1 "u8": u8[2, T]
  input %2 "i64": i64[2, T]
{
  %3: f32[2, T] = exp(x=%0)
  %4: f32[2, T] = exp(x=%1)
  %5: f32[2, T] = exp(x=%2)
  %6: f32[2, T] = tanh(x=%0)
  %7: f32[2, T] = tanh(x=%1)
  %8: f32[2, T] = tanh(x=%2)
  %9: f32[2, T] = sqrt(x=%0)
  %10: f32[2, T] = sqrt(x=%1)
  %11: f32[2, T] = sqrt(x=%2)
  %12: f32[2, T] = erf(x=%0)
  %13: f32[2, T] = erf(x=%1)
  %14: f32[2, T] = erf(x=%2)
}

;;; rounding and signs keep every dtype
graph "rounding and signs keep every dtype"
  symbol T in 2..=64
  input %0 "f16": f16[2, T]
  input %1 "i32": i32[2, T]
{
  %2: f16[2, T] = id_copy(x=%0)
  %3: i32[2, T] = id_copy(x=%1)
  %4: f16[2, T] = contiguous(x=%0)
  %5: i32[2, T] = contiguous(x=%1)
  %6: f16[2, T] = floor(x=%0)
  %7: i32[2, T] = floor(x=%1)
  %8: f16[2, T] = ceil(x=%0)
  %9: i32[2, T] = ceil(x=%1)
  %10: f16[2, T] = square(x=%0)
  %11: i32[2, T] = square(x=%1)
  %12: f16[2, T] = abs(x=%0)
  %13: i32[2, T] = abs(x=%1)
  %14: f16[2, T] = sign(x=%0)
  %15: i32[2, T] = sign(x=%1)
  %16: f16[2, T] = trunc(x=%0)
  %17: i32[2, T] = trunc(x=%1)
  %18: f16[2, T] = round(x=%0)
  %19: i32[2, T] = round(x=%1)
}

;;; rounding and signs keep rare dtypes
graph "rounding and signs keep rare dtypes"
  symbol T in 2..=64
  input %0 "bool": bool[2, T]
  input %1 "u8": u8[2, T]
  input %2 "u64": u64[2, T]
  input %3 "i16": i16[2, T]
{
  %4: bool[2, T] = abs(x=%0)
  %5: u8[2, T] = abs(x=%1)
  %6: u64[2, T] = abs(x=%2)
  %7: i16[2, T] = abs(x=%3)
  %8: bool[2, T] = square(x=%0)
  %9: u8[2, T] = square(x=%1)
  %10: u64[2, T] = square(x=%2)
  %11: i16[2, T] = square(x=%3)
  %12: bool[2, T] = sign(x=%0)
  %13: u8[2, T] = sign(x=%1)
  %14: u64[2, T] = sign(x=%2)
  %15: i16[2, T] = sign(x=%3)
  %16: bool[2, T] = floor(x=%0)
  %17: u8[2, T] = floor(x=%1)
  %18: u64[2, T] = floor(x=%2)
  %19: i16[2, T] = floor(x=%3)
}

;;; gelu by either form
graph "gelu by either form"
  input %0 "x": bf16[4]
  input %1 "n": i32[4]
{
  %2: bf16[4] = gelu(x=%0, approximate="tanh")
  %3: bf16[4] = gelu(x=%0, approximate="none")
  %4: f32[4] = gelu(x=%1, approximate="")
}

;;; round to decimals
graph "round to decimals"
  input %0 "x": f32[3]
  input %1 "n": i64[3]
{
  %2: f32[3] = round(x=%0, decimals=2)
  %3: i64[3] = round(x=%1, decimals=-1)
}

;;; negative and not
graph "negative and not"
  symbol T in 0..
  input %0 "x": f32[T]
  input %1 "n": i8[T]
  input %2 "u": u32[T]
  input %3 "p": bool[T]
{
  %4: f32[T] = neg(x=%0)
  %5: i8[T] = neg(x=%1)
  %6: u32[T] = neg(x=%2)
  %7: bool[T] = neg(x=%3)  ; error: x cannot be bool; a number is needed
  %8: bool[T] = logical_not(x=%0)
  %9: bool[T] = logical_not(x=%3)
  %10: i8[T] = bitwise_invert(x=%1)
  %11: bool[T] = bitwise_invert(x=%3)
  %12: f32[T] = bitwise_invert(x=%0)  ; error: x cannot be f32; an integer or bool is needed
}

;;; conversions
graph "conversions"
  symbol T in 0..
  input %0 "x": f32[2, T]
  input %1 "p": bool[]
{
  %2: i8[2, T] = as_type(x=%0, scalar_type=i8)
  %3: f32[2, T] = as_type(x=%0, scalar_type=f32)
  %4: bf16[] = as_type(x=%1, scalar_type=bf16)
}

;;; nothing at all
graph "nothing at all"
{
  noop()
}

;;; scalars are not tensors
graph "scalars are not tensors"
  input %0 "n": int(3)
{
  %1: f32[] = id_copy(x=%0)  ; error: %0 is not a tensor
  %2: f32[] = contiguous(x=%0)  ; error: %0 is not a tensor
  %3: f32[] = floor(x=%0)  ; error: %0 is not a tensor
  %4: f32[] = ceil(x=%0)  ; error: %0 is not a tensor
  %5: f32[] = square(x=%0)  ; error: %0 is not a tensor
  %6: f32[] = abs(x=%0)  ; error: %0 is not a tensor
  %7: f32[] = sign(x=%0)  ; error: %0 is not a tensor
  %8: f32[] = trunc(x=%0)  ; error: %0 is not a tensor
  %9: f32[] = round(x=%0)  ; error: %0 is not a tensor
  %10: f32[] = silu(x=%0)  ; error: %0 is not a tensor
  %11: f32[] = sigmoid(x=%0)  ; error: %0 is not a tensor
  %12: f32[] = tanh(x=%0)  ; error: %0 is not a tensor
  %13: f32[] = rsqrt(x=%0)  ; error: %0 is not a tensor
  %14: f32[] = log(x=%0)  ; error: %0 is not a tensor
  %15: f32[] = exp(x=%0)  ; error: %0 is not a tensor
  %16: f32[] = sin(x=%0)  ; error: %0 is not a tensor
  %17: f32[] = cos(x=%0)  ; error: %0 is not a tensor
  %18: f32[] = tan(x=%0)  ; error: %0 is not a tensor
  %19: f32[] = arcsin(x=%0)  ; error: %0 is not a tensor
  %20: f32[] = arccos(x=%0)  ; error: %0 is not a tensor
  %21: f32[] = arctan(x=%0)  ; error: %0 is not a tensor
  %22: f32[] = sinh(x=%0)  ; error: %0 is not a tensor
  %23: f32[] = cosh(x=%0)  ; error: %0 is not a tensor
  %24: f32[] = arcsinh(x=%0)  ; error: %0 is not a tensor
  %25: f32[] = arccosh(x=%0)  ; error: %0 is not a tensor
  %26: f32[] = arctanh(x=%0)  ; error: %0 is not a tensor
  %27: f32[] = log2(x=%0)  ; error: %0 is not a tensor
  %28: f32[] = log10(x=%0)  ; error: %0 is not a tensor
  %29: f32[] = log1p(x=%0)  ; error: %0 is not a tensor
  %30: f32[] = erf(x=%0)  ; error: %0 is not a tensor
  %31: f32[] = expm1(x=%0)  ; error: %0 is not a tensor
  %32: f32[] = reciprocal(x=%0)  ; error: %0 is not a tensor
  %33: f32[] = sqrt(x=%0)  ; error: %0 is not a tensor
  %34: f32[] = neg(x=%0)  ; error: %0 is not a tensor
  %35: f32[] = logical_not(x=%0)  ; error: %0 is not a tensor
  %36: f32[] = bitwise_invert(x=%0)  ; error: %0 is not a tensor
  %37: f32[] = gelu(x=%0, approximate="tanh")  ; error: %0 is not a tensor
  %38: f32[] = as_type(x=%0, scalar_type=f32)  ; error: %0 is not a tensor
}

;;; results that the rule does not give
graph "results that the rule does not give"
  input %0 "x": f32[2, 3]
  input %1 "n": i32[2, 3]
{
  %2: f16[2, 3] = exp(x=%0)  ; error: %2 is declared f16[2, 3], but the op gives f32[2, 3]
  %3: i32[2, 3] = exp(x=%1)  ; error: %3 is declared i32[2, 3], but the op gives f32[2, 3]
  %4: f32[2, 4] = exp(x=%0)  ; error: %4 is declared f32[2, 4], but the op gives f32[2, 3]
  %5: f32[6] = abs(x=%0)  ; error: %5 is declared f32[6], but the op gives f32[2, 3]
  %6: f32[2, 3], %7: f32[2, 3] = abs(x=%0)  ; error: 2 results are listed where the op gives 1
  abs(x=%0)  ; error: 0 results are listed where the op gives 1
}
