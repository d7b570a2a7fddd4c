graph "forward"
  symbol s0 in 0..=8
  symbol s1 in i32
  input %0 "x": f32[1, 2]
  input %1 "position": i64[1]
  constant %2 "w": f32[2]
  buffer %3 "rows": f32[8, 2] -> %10
{
  %4: f32[1, 2] = add(a=%0, b=%2)
  %5: f32[1, 2] = multiply(a=%4, b=%2)
  %6: f32[1, 2] = exp(x=%5)
  %7: f32[1, 2] = add(a=%6, b=%4)
  %8: int(s1) = item_int(x=%1)
  %9: int(s1+1) = add_int(a=%8, b=1)
  %10: f32[8, 2] = slice_update(dst=%3, update=%7, axis=0, start=%8, stop=%9)
  %11: f32[s0, 2] = slice(x=%10, axis=0, start=0, stop=%9)
  %12: f32[2] = sum(x=%11, axes=[0])
  %13: f32[2] = add(a=%12, b=%2)
  %14: f32[2] = multiply(a=%13, b=%2)
  %15: f32[2] = exp(x=%14)
  %16: f32[2] = add(a=%15, b=%13)
}
output %16 "out": f32[2]
