; Ops that pick and place elements by index tensors (semantics.md, section 5).

;;; slices picked
graph "slices picked"
  symbol T in 2..=64
  symbol i in i32
  input %0 "x": bf16[8, 4]
  input %1 "tokens": i64[1, T]
  input %2 "one": u32[]
  input %3 "i": int(i)
{
  %4: bf16[1, T, 4] = take(x=%0, index=%1, axis=0)
  %5: bf16[8, 1, T] = take(x=%0, index=%1, axis=-1)
  %6: bf16[4] = take(x=%0, index=%2, axis=0)
  %7: bf16[4] = take(x=%0, index=3, axis=0)
  %8: bf16[8] = take(x=%0, index=-4, axis=1)
  %9: bf16[8] = take(x=%0, index=int(%3), axis=1)
}

;;; slices that are not there
graph "slices that are not there"
  input %0 "x": f32[8, 4]
  input %1 "p": bool[2]
  input %2 "f": f32[2]
  input %3 "s": f32[]
  input %4 "n": int(3)
{
  %5: f32[4] = take(x=%0, index=8, axis=0)  ; error: index 8 is outside an axis of size 8
  %6: f32[8] = take(x=%0, index=-5, axis=1)  ; error: index -5 is outside an axis of size 4
  %7: f32[2, 4] = take(x=%0, index=%1, axis=0)  ; error: an index cannot be bool; an integer is needed
  %8: f32[2, 4] = take(x=%0, index=%2, axis=0)  ; error: an index cannot be f32; an integer is needed
  %9: f32[8, 4] = take(x=%0, index=0, axis=2)  ; error: axis 2 is outside a tensor of rank 2
  %10: f32[] = take(x=%3, index=0, axis=0)  ; error: axis 0 is outside a tensor of rank 0
  %11: f32[4] = take(x=%0, index=%4, axis=0)  ; error: %4 is not a tensor
  %12: f32[4] = take(x=%0, index=int(%1), axis=0)  ; error: %1 is not a scalar
}

;;; elements picked along an axis
graph "elements picked along an axis"
  symbol T in 2..=64
  input %0 "x": f32[2, T, 8]
  input %1 "i": u32[2, T, 3]
  input %2 "row": i32[1, 1, 3]
  input %3 "s": f32[]
  input %4 "z": i32[]
{
  %5: f32[2, T, 3] = take_along_axis(x=%0, indices=%1, axis=-1)
  %6: f32[2, T, 3] = take_along_axis(x=%0, indices=%2, axis=2)
  %7: f32[] = take_along_axis(x=%3, indices=%4, axis=0)
  %8: f32[3] = take_along_axis(x=%0, indices=%4, axis=0)  ; error: ranks of a tensor and its indices differ: [2, T, 8] and []
  %9: f32[2, T, 3] = take_along_axis(x=%0, indices=%0, axis=2)  ; error: an index cannot be f32; an integer is needed
  %10: f32[2, T, 3] = take_along_axis(x=%0, indices=%1, axis=1)  ; error: sizes that should broadcast differ: 8 and 3
}

;;; slices gathered
graph "slices gathered"
  symbol T in 2..=64
  input %0 "x": f32[8, 4, T]
  input %1 "a": i32[5, 1]
  input %2 "b": i64[6]
  input %3 "f": f32[6]
{
  %4: f32[5, 1, 1, 4, 2] = gather(x=%0, indices=[%1], axes=[0], slice_sizes=[1, 4, 2])
  %5: f32[5, 6, 1, 1, 3] = gather(x=%0, indices=[%1, %2], axes=[0, 1], slice_sizes=[1, 1, 3])
  %6: f32[8, 4, 1] = gather(x=%0, indices=[], axes=[], slice_sizes=[8, 4, 1])
  %7: f32[6, 8, 1, 2] = gather(x=%0, indices=[%2], axes=[-2], slice_sizes=[8, 1, 2])
  %8: f32[6, 1, 4, 2] = gather(x=%0, indices=[%2], axes=[0, 1], slice_sizes=[1, 4, 2])  ; error: 1 indices for 2 axes, 3 slice sizes for rank 3
  %9: f32[6, 1, 4] = gather(x=%0, indices=[%2], axes=[0], slice_sizes=[1, 4])  ; error: 1 indices for 1 axes, 2 slice sizes for rank 3
  %10: f32[6, 1, 4, 2] = gather(x=%0, indices=[%2, %2], axes=[0, -3], slice_sizes=[1, 4, 2])  ; error: axis -3 is indexed twice
  %11: f32[6, 1, 5, 2] = gather(x=%0, indices=[%2], axes=[0], slice_sizes=[1, 5, 2])  ; error: slices of 5 from an axis of size 4
  %12: f32[6, 1, 4, 65] = gather(x=%0, indices=[%2], axes=[0], slice_sizes=[1, 4, 65])  ; error: slices of 65 from an axis of size T
  %13: f32[6, 1, 4, 2] = gather(x=%0, indices=[%2], axes=[0], slice_sizes=[1, 4, -1])  ; error: slices of -1 from an axis of size T
  %14: f32[6, 1, 4, 2] = gather(x=%0, indices=[%3], axes=[0], slice_sizes=[1, 4, 2])  ; error: an index cannot be f32; an integer is needed
  %15: f32[6, 1, 4, 2] = gather(x=%0, indices=[%2], axes=[3], slice_sizes=[1, 4, 2])  ; error: axis 3 is outside a tensor of rank 3
}

;;; rows replaced
graph "rows replaced"
  symbol T in 2..=64
  input %0 "cache": f16[1, 2, 64, 16]
  input %1 "new": f32[1, 2, T, 16]
  input %2 "at": i64[T]
  input %3 "two": i64[1, T]
  input %4 "f": f32[T]
  input %5 "short": f32[1, 2, T, 8]
{
  %6: f16[1, 2, 64, 16] = index_copy(dst=%0, update=%1, indices=%2, axis=2)
  %7: f16[1, 2, 64, 16] = index_copy(dst=%0, update=%1, indices=%2, axis=-2)
  %8: f16[1, 2, 64, 16] = index_copy(dst=%0, update=%1, indices=%3, axis=2)  ; error: indices has rank 2; 1 is needed
  %9: f16[1, 2, 64, 16] = index_copy(dst=%0, update=%1, indices=%4, axis=2)  ; error: an index cannot be f32; an integer is needed
  %10: f16[1, 2, 64, 16] = index_copy(dst=%0, update=%5, indices=%2, axis=2)  ; error: an update and the rows that it replaces differ: 8 and 16
  %11: f16[1, 2, 64, 16] = index_copy(dst=%0, update=%1, indices=%2, axis=4)  ; error: axis 4 is outside a tensor of rank 4
}

;;; sums at indices
graph "sums at indices"
  symbol T in 2..=64
  input %0 "x": f32[8, 4]
  input %1 "i": i64[T, 4]
  input %2 "u": f16[T, 4]
  input %3 "wide": f16[T, 5]
  input %4 "short": f16[T, 2]
  input %5 "ishort": i64[T, 2]
  input %6 "s": i64[4]
  input %7 "f": f32[T, 4]
{
  %8: f32[8, 4] = scatter_add(x=%0, indices=%1, updates=%2, axis=0)
  %9: f32[8, 4] = scatter_add(x=%0, indices=%1, updates=%2, axis=-2)
  %10: f32[8, 4] = scatter_add(x=%0, indices=%5, updates=%4, axis=0)
  %11: f32[8, 4] = scatter_add(x=%0, indices=%1, updates=%3, axis=0)  ; error: shapes that should broadcast differ: [T, 4] and [T, 5]
  %12: f32[8, 4] = scatter_add(x=%0, indices=%6, updates=%2, axis=0)  ; error: ranks of a tensor, its indices and updates differ: [8, 4] and [T, 4]
  %13: f32[8, 4] = scatter_add(x=%0, indices=%7, updates=%2, axis=0)  ; error: an index cannot be f32; an integer is needed
  %14: f32[8, 4] = scatter_add(x=%0, indices=%1, updates=%2, axis=2)  ; error: axis 2 is outside a tensor of rank 2
}

;;; sums beside the indexed axis do not reach further than the tensor
graph "sums beside the indexed axis do not reach further than the tensor"
  input %0 "x": f32[8, 4]
  input %1 "i": i64[3, 5]
  input %2 "u": f32[3, 5]
{
  %3: f32[8, 4] = scatter_add(x=%0, indices=%1, updates=%2, axis=1)
  %4: f32[8, 4] = scatter_add(x=%0, indices=%1, updates=%2, axis=0)  ; error: sizes beside the indexed axis differ: 4 and 5
}
