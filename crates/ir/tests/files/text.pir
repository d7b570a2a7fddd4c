; The text form itself: what it can say, and that it is printed as it is written here.

;;; an empty graph
graph ""
{}

;;; names need escapes
graph "line\nend\t\"quoted\" \\ \u{0} é 'x' 日本"
  input %0 "": f32[]
  input %1 "a;b": f32[]
{}
output %0 "; not a comment": f32[]

;;; symbols: words, numbers, bounds
graph "symbols"
  symbol T in 2..=64
  symbol s1 in 0..
  symbol n in i32
  symbol #3 "batch size" in 0..=4
  symbol #4 "T" in 0..
  symbol least in -9223372036854775808..=9223372036854775807
  symbol _x9 in -5..
  symbol graph in 0..
  symbol f32 in 0..
  input %0 "a": f32[T, s1, #3, #4, graph, f32]
  input %1 "b": f32[T+s1, 2*T-3*s1+100, -T+64, 4*#3+#4-1]
  input %2 "c": int(n)
  input %3 "d": int(-9223372036854775808*n-9223372036854775808)
  input %4 "e": int(9223372036854775807*n+9223372036854775807)
  input %5 "f": int(-7)
{}

;;; every type
graph "types"
  input %0 "": bool[]
  input %1 "": u8[1]
  input %2 "": u16[1, 2]
  input %3 "": u32[0]
  input %4 "": u64[]
  input %5 "": i8[]
  input %6 "": i16[]
  input %7 "": i32[]
  input %8 "": i64[]
  input %9 "": f16[]
  input %10 "": bf16[]
  input %11 "": f32[]
  input %12 "": f64[]
  input %13 "": int(0)
  input %14 "": float
  input %15 "": bool
{}
output %0 "converted": u8[]
output %14 "": float

;;; arguments, constants, state and results
graph "forward"
  symbol T in 2..=64
  input %0 "tokens": i64[1, T]
  constant %1 "ab12/w": f32[8, 4]
  constant %2 "bias": f32[4]
  buffer %3 "seen": i64[1, T] -> %0
  buffer %4 "untouched": f32[2]
{
  %5: f32[1, T, 4] = take(x=%1, index=%0, axis=0)  ; chain 0 #3
  %6: f32[1, T, 4] = add(a=%5, b=%2)
}
output %6 "logits": f16[1, T, 4]
output %6 "again": f32[1, T, 4]
output %0 "tokens": i64[1, T]

;;; numbers of values in any order
graph "order"
  input %3 "x": f32[2]
{
  %2: f32[2] = exp(x=%3)
  %0: f32[2] = exp(x=%2)
  %1: f32[2] = exp(x=%0)
}
output %1 "y": f32[2]

;;; values that nothing defines
graph "left over"
  input %1 "x": f32[2]
  value %0: f32[3, 4]
  value %3: int(5)
{
  %2: f32[2] = exp(x=%1)
}

;;; fields at their defaults are left out
graph "defaults"
  input %0 "x": f32[1, 8, 8, 4]
  input %1 "w": f32[4, 1, 1, 4]
  input %2 "pos": int(0)
{
  %3: f32[1, 8, 8, 4] = conv2d(x=%0, w=%1)
  %4: f32[1, 4, 8, 4] = conv2d(x=%0, w=%1, stride_h=2)
  %5: f32[1, 8, 8, 4] = rope(x=%0, dims=4, offset=int(%2))
  %6: f32[1, 8, 8, 4] = rope(x=%0, dims=4, offset=int(%2), traditional=true, base=10000.0, scale=-0.0)
  %7: f32[1, 8, 8, 4] = cumsum(x=%0, axis=0)
  %8: f32[1, 8, 8, 4] = cumsum(x=%0, axis=0, inclusive=false)
  %9: f32[1, 8, 8, 4] = pad(x=%0, pad_width=[0, 0, 0, 0, 0, 0, 0, 0], mode="constant", constant_value=-0.0)
  %10: f32[1, 8, 8, 4] = as_strided(x=%0, shape=[1, 8, 8, 4], strides=[-256, 32, 4, 1], offset=18446744073709551615)
}

;;; floats keep their bits
graph "floats"
  input %0 "x": f32[2]
{
  %1: f32[2] = rms_norm(x=%0, eps=1e-5)
  %2: f32[2] = rms_norm(x=%0, eps=1e-45)
  %3: f32[2] = rms_norm(x=%0, eps=3.4028235e38)
  %4: f32[2] = rms_norm(x=%0, eps=0.1)
  %5: f32[2] = rms_norm(x=%0, eps=inf)
  %6: f32[2] = rms_norm(x=%0, eps=-0.0)
  %7: f32[2] = full_like(x=%0, v=0.1)
  %8: f32[2] = full_like(x=%0, v=0.30000000000000004)
  %9: f32[2] = full_like(x=%0, v=5e-324)
  %10: f32[2] = full_like(x=%0, v=1.7976931348623157e308)
  %11: f32[2] = full_like(x=%0, v=-inf)
  %12: f32[2] = full_like(x=%0, v=16777217.0)
}

;;; not numbers keep their bits too
graph "nan"
  input %0 "x": f32[2]
{
  %1: f32[2] = rms_norm(x=%0, eps=nan)
  %2: f32[2] = rms_norm(x=%0, eps=-nan)
  %3: f32[2] = rms_norm(x=%0, eps=nan(1))
  %4: f32[2] = rms_norm(x=%0, eps=-nan(8388607))
  %5: f32[2] = full_like(x=%0, v=nan)
  %6: f32[2] = full_like(x=%0, v=-nan(4503599627370495))
}

;;; bodies nest and take parameters
graph "bodies"
  input %0 "xs": f32[2, 3]
  input %1 "c": int(1)
{
  %2: f32[2, 3], %3: f32[2] = scan(originals=[%0], carry=[%4]) body (%5: f32[2], %6: f32[2]) {  ; error: %4 is used before it is defined
    %7: f32[2] = if(cond=%1) then {
      yield %5
    } else {
      noop()
      %8: f32[2] = exp(x=%5)
      yield %8
    }
    yield %7, %6
  }
  %4: f32[2] = max(x=%0, axes=[1])
}

;;; a block of a graph with parameters prints too
; error: the block of a graph has no parameters and yields nothing
graph "outer"
(%0: f32[2]) {
  yield %0
}
