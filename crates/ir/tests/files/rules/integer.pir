; Integers: sizes and positions as affine expressions, 32 bits at run time.

;;; sums and multiples stay exact
graph "sums and multiples stay exact"
  symbol T in 2..=64
  symbol n in 0..
  input %0 "x": f32[2, T, n]
{
  %1: int(2) = sym_size(a=%0, dim=0)
  %2: int(T) = sym_size(a=%0, dim=1)
  %3: int(n) = sym_size(a=%0, dim=-1)
  %4: int(T+n) = add_int(a=%2, b=%3)
  %5: int(T+3) = add_int(a=3, b=%2)
  %6: int(T-n) = subtract_int(a=%2, b=%3)
  %7: int(0) = subtract_int(a=%2, b=%2)
  %8: int(-T+64) = subtract_int(a=64, b=%2)
  %9: int(2*T) = multiply_int(a=%2, b=%1)
  %10: int(T) = floor_divide_int(a=%9, b=2)
  %11: int(2*T+2*n) = multiply_int(a=%1, b=%4)
}

;;; numbers are computed
graph "numbers are computed"
{
  %0: int(7) = add_int(a=3, b=4)
  %1: int(-1) = subtract_int(a=3, b=4)
  %2: int(12) = multiply_int(a=3, b=4)
  %3: int(3) = floor_divide_int(a=7, b=2)
  %4: int(-4) = floor_divide_int(a=-7, b=2)
  %5: int(-4) = floor_divide_int(a=7, b=-2)
  %6: int(3) = floor_divide_int(a=-7, b=-2)
  %7: int(1) = mod_int(a=7, b=3)
  %8: int(2) = mod_int(a=-7, b=3)
  %9: int(-2) = mod_int(a=7, b=-3)
  %10: int(-1) = mod_int(a=-7, b=-3)
  %11: int(2147483647) = add_int(a=2147483646, b=1)
}

;;; what is not affine is open within its bounds
graph "what is not affine is open within its bounds"
  symbol T in 2..=64
  symbol n in 0..
  symbol any in i32
  symbol product in 0..=2147483647
  symbol square in -256..=3840
  symbol half in 0..=32
  symbol below in -2..=30
  symbol turned in -32..=0
  symbol quotient in 0..=64
  symbol signed in -64..=64
  symbol rest in 0..=1
  symbol behind in -2..=0
  symbol smaller in 0..=63
  input %0 "t": int(T)
  input %1 "n": int(n)
  input %2 "any": int(any)
{
  %3: int(product) = multiply_int(a=%0, b=%1)
  %4: int(T-4) = subtract_int(a=%0, b=4)
  %5: int(square) = multiply_int(a=%4, b=%0)
  %6: int(half) = floor_divide_int(a=%0, b=2)
  %7: int(below) = floor_divide_int(a=%4, b=2)
  %8: int(turned) = floor_divide_int(a=%0, b=-2)
  %9: int(quotient) = floor_divide_int(a=64, b=%0)
  %10: int(signed) = floor_divide_int(a=%0, b=%2)
  %11: int(rest) = mod_int(a=%0, b=2)
  %12: int(behind) = mod_int(a=%2, b=-3)
  %13: int(smaller) = mod_int(a=%2, b=%0)
  %14: int(any) = floor_divide_int(a=%2, b=%2)
  %15: i32[half] = arange(start=0, stop=%6, step=1)
}

;;; elements become integers
graph "elements become integers"
  symbol any in i32
  symbol bit in 0..=1
  symbol T in 2..=64
  input %0 "n": i64[1]
  input %1 "s": i32[]
  input %2 "p": bool[1, 1]
  input %3 "x": f32[]
  input %4 "t": i32[T]
{
  %5: int(any) = item_int(x=%0)
  %6: int(any) = item_int(x=%1)
  %7: int(bit) = item_int(x=%2)
  %8: int(any) = item_int(x=%3)
  %9: int(any) = item_int(x=%4)
}

;;; a truth value counts as 0 or 1
graph "a truth value counts as 0 or 1"
  symbol bit in 0..=1
  input %0 "p": bool
{
  %1: int(bit+1) = add_int(a=%0, b=1)
}

;;; refused
graph "refused"
  symbol T in 2..=64
  input %0 "x": f32[2, T]
  input %1 "f": float
{
  %2: int(0) = add_int(a=2147483647, b=1)  ; error: 2147483648 does not fit 32 bits
  %3: int(0) = subtract_int(a=-2147483648, b=1)  ; error: -2147483649 does not fit 32 bits
  %4: int(0) = multiply_int(a=65536, b=65536)  ; error: 4294967296 does not fit 32 bits
  %5: int(0) = multiply_int(a=9223372036854775807, b=9223372036854775807)  ; error: a size overflows 64 bits
  %6: int(0) = floor_divide_int(a=1, b=0)  ; error: division by zero
  %7: int(0) = mod_int(a=1, b=0)  ; error: division by zero
  %8: int(0) = add_int(a=%0, b=1)  ; error: %0 is not a scalar
  %9: int(0) = add_int(a=%1, b=1)  ; error: %1 is not an integer
  %10: int(0) = sym_size(a=%0, dim=2)  ; error: axis 2 is outside a tensor of rank 2
  %11: int(0) = sym_size(a=%0, dim=-3)  ; error: axis -3 is outside a tensor of rank 2
  %12: int(0) = item_int(x=%0)  ; error: a size of a single element and 1 differ: 2 and 1
  %13: int(0) = item_int(x=%1)  ; error: %1 is not a tensor
  %14: int(3) = sym_size(a=%0, dim=0)  ; error: %14 is declared int(3), but the op gives int(2)
}
