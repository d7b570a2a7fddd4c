; Ops of two or three tensors, element by element: promotion (semantics.md, section 2) and broadcasting.

;;; arithmetic promotes and broadcasts
graph "arithmetic promotes and broadcasts"
  input %0 "a": f32[2, 1, 4]
  input %1 "b": f32[3, 1]
{
  %2: f32[2, 3, 4] = add(a=%0, b=%1)
  %3: f32[2, 3, 4] = subtract(a=%0, b=%1)
  %4: f32[2, 3, 4] = multiply(a=%0, b=%1)
  %5: f32[2, 3, 4] = divide(a=%0, b=%1)
  %6: f32[2, 3, 4] = maximum(a=%0, b=%1)
  %7: f32[2, 3, 4] = minimum(a=%0, b=%1)
  %8: f32[2, 3, 4] = floor_divide(a=%0, b=%1)
  %9: f32[2, 3, 4] = remainder(a=%0, b=%1)
  %10: f32[2, 3, 4] = power(a=%0, b=%1)
  %11: f32[2, 3, 4] = atan2(a=%0, b=%1)
  %12: f32[2, 3, 4] = log_add_exp(a=%0, b=%1)
}

;;; quotients and angles of integers are f32, other results keep the integer
graph "quotients and angles of integers are f32, other results keep the integer"
  input %0 "a": i32[4]
  input %1 "b": i64[4]
{
  %2: i64[4] = add(a=%0, b=%1)
  %3: i64[4] = subtract(a=%0, b=%1)
  %4: i64[4] = multiply(a=%0, b=%1)
  %5: i64[4] = maximum(a=%0, b=%1)
  %6: i64[4] = minimum(a=%0, b=%1)
  %7: i64[4] = floor_divide(a=%0, b=%1)
  %8: i64[4] = remainder(a=%0, b=%1)
  %9: i64[4] = power(a=%0, b=%1)
  %10: f32[4] = divide(a=%0, b=%1)
  %11: f32[4] = atan2(a=%0, b=%1)
  %12: f32[4] = log_add_exp(a=%0, b=%1)
}

;;; the promotion table
graph "the promotion table"
  input %0 "p": bool[]
  input %1 "u8": u8[]
  input %2 "u16": u16[]
  input %3 "u32": u32[]
  input %4 "u64": u64[]
  input %5 "i8": i8[]
  input %6 "i16": i16[]
  input %7 "i32": i32[]
  input %8 "i64": i64[]
  input %9 "f16": f16[]
  input %10 "bf16": bf16[]
  input %11 "f32": f32[]
{
  %12: bool[] = add(a=%0, b=%0)
  %13: u8[] = add(a=%0, b=%1)
  %14: i64[] = add(a=%8, b=%0)
  %15: u32[] = add(a=%1, b=%3)
  %16: i64[] = add(a=%5, b=%8)
  %17: i16[] = add(a=%1, b=%5)
  %18: i16[] = add(a=%6, b=%1)
  %19: i32[] = add(a=%2, b=%6)
  %20: i32[] = add(a=%2, b=%5)
  %21: i64[] = add(a=%3, b=%5)
  %22: i64[] = add(a=%3, b=%7)
  %23: i64[] = add(a=%3, b=%8)
  %24: f32[] = add(a=%4, b=%5)
  %25: f32[] = add(a=%4, b=%8)
  %26: u64[] = add(a=%4, b=%1)
  %27: f16[] = add(a=%8, b=%9)
  %28: bf16[] = add(a=%10, b=%4)
  %29: f16[] = add(a=%0, b=%9)
  %30: f32[] = add(a=%9, b=%10)
  %31: f32[] = add(a=%11, b=%10)
  %32: f16[] = divide(a=%7, b=%9)
}

;;; comparisons give bool
graph "comparisons give bool"
  symbol T in 2..=64
  input %0 "a": f32[T, 4]
  input %1 "b": i64[4]
{
  %2: bool[T, 4] = less(a=%0, b=%1)
  %3: bool[T, 4] = less_equal(a=%0, b=%1)
  %4: bool[T, 4] = greater(a=%0, b=%1)
  %5: bool[T, 4] = greater_equal(a=%0, b=%1)
  %6: bool[T, 4] = equal(a=%0, b=%1)
  %7: bool[T, 4] = not_equal(a=%0, b=%1)
  %8: bool[T, 4] = logical_and(a=%0, b=%1)
  %9: bool[T, 4] = logical_or(a=%0, b=%1)
}

;;; bits of integers and bools
graph "bits of integers and bools"
  input %0 "a": i32[2, 1]
  input %1 "b": u8[3]
  input %2 "p": bool[3]
{
  %3: i32[2, 3] = bitwise_and(a=%0, b=%1)
  %4: i32[2, 3] = bitwise_or(a=%0, b=%1)
  %5: u8[3] = bitwise_xor(a=%1, b=%2)
  %6: bool[3] = bitwise_xor(a=%2, b=%2)
}

;;; symbols broadcast: a known size wins, two symbols leave it open
graph "symbols broadcast"
  symbol T in 2..=64
  symbol n in 0..=8
  symbol open in 0..=64
  symbol U in 0..
  symbol free in 0..
  input %0 "t": f32[T]
  input %1 "one": f32[1]
  input %2 "four": f32[4]
  input %3 "n": f32[n]
  input %4 "u": f32[U]
  input %5 "twice": f32[2*T]
{
  %6: f32[T] = add(a=%0, b=%0)
  %7: f32[T] = add(a=%0, b=%1)
  %8: f32[T] = add(a=%1, b=%0)
  %9: f32[4] = add(a=%0, b=%2)
  %10: f32[4] = add(a=%2, b=%0)
  %11: f32[open] = add(a=%0, b=%3)
  %12: f32[free] = add(a=%0, b=%4)
  %13: f32[2*T] = add(a=%5, b=%5)
}

;;; shapes that do not broadcast
graph "shapes that do not broadcast"
  input %0 "a": f32[2, 3]
  input %1 "b": f32[4]
  input %2 "c": f32[2, 2]
{
  %3: f32[2, 3] = add(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %4: f32[2, 3] = subtract(a=%0, b=%2)  ; error: shapes that should broadcast differ: [2, 3] and [2, 2]
  %5: f32[2, 3] = multiply(a=%1, b=%0)  ; error: shapes that should broadcast differ: [4] and [2, 3]
  %6: f32[2, 3] = divide(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %7: f32[2, 3] = maximum(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %8: f32[2, 3] = minimum(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %9: f32[2, 3] = floor_divide(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %10: f32[2, 3] = remainder(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %11: f32[2, 3] = power(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %12: f32[2, 3] = atan2(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %13: f32[2, 3] = log_add_exp(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %14: bool[2, 3] = less(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %15: bool[2, 3] = less_equal(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %16: bool[2, 3] = greater(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %17: bool[2, 3] = greater_equal(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %18: bool[2, 3] = equal(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %19: bool[2, 3] = not_equal(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %20: bool[2, 3] = logical_and(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %21: bool[2, 3] = logical_or(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %22: f32[2, 3] = where(condition=%1, x=%0, y=%0)  ; error: shapes that should broadcast differ: [4] and [2, 3]
  %23: f32[2, 3] = where(condition=%0, x=%0, y=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %24: f32[2, 3] = clip(x=%0, a_max=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
}

;;; floats have no bits
graph "floats have no bits"
  input %0 "x": f32[3]
  input %1 "n": i32[3]
{
  %2: f32[3] = bitwise_and(a=%0, b=%1)  ; error: a cannot be f32; an integer or bool is needed
  %3: f32[3] = bitwise_or(a=%1, b=%0)  ; error: b cannot be f32; an integer or bool is needed
  %4: f32[3] = bitwise_xor(a=%0, b=%0)  ; error: a cannot be f32; an integer or bool is needed
}

;;; choosing and limiting
graph "choosing and limiting"
  symbol T in 2..=64
  input %0 "p": bool[T, 1]
  input %1 "x": bf16[4]
  input %2 "y": f32[]
  input %3 "n": i32[T, 4]
{
  %4: f32[T, 4] = where(condition=%0, x=%1, y=%2)
  %5: bf16[T, 4] = where(condition=%1, x=%1, y=%3)
  %6: f32[4] = clip(x=%1, a_min=%2)
  %7: bf16[T, 4] = clip(x=%3, a_max=%1)
  %8: f32[T, 4] = clip(x=%3, a_min=%1, a_max=%2)
}
